"""Where the store is in its folder, and what to do when it cannot be used."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Final

from arcp_trio.cli.errors import CommandError
from arcp_trio.cli.options import DATA
from arcp_trio.store.errors import (
    CorruptStore,
    ForeignFile,
    OtherVersion,
    StoreError,
    StoreInUse,
)

_ADVICE: Final[dict[type[StoreError], str]] = {
    StoreInUse: "stop that, or choose another --data",
    ForeignFile: "move it away, or choose another --data",
    OtherVersion: "use that version, or choose another --data",
    CorruptStore: "put a copy in its place, or move it away to begin with an empty one",
}
_OTHER_ADVICE: Final = "choose another --data"


log = logging.getLogger(__name__)


def store_path(folder: str) -> Path:
    """The file of the store in the folder that --data names."""
    return Path(folder) / "arcp.db"


def close_to_others(folder: str) -> None:
    """Take from other users what they may do in the default folder; nothing else belongs in there.

    The mode of any other folder is its owner's decision.
    """
    path = Path(folder)
    if folder != DATA or not path.is_dir():
        return
    facts = path.stat()
    if facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) & 0o077:
        path.chmod(0o700)
        log.warning("closed to other users", extra={"path": str(path)})


def cannot_use(error: StoreError) -> CommandError:
    """What to tell whoever has chosen this store."""
    said = " ".join(str(error).split())
    return CommandError(f"{said}; {_ADVICE.get(type(error), _OTHER_ADVICE)}")
