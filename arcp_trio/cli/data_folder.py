"""The folder that --data names: what is in it, and what to do when its store cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from arcp_trio.cli.errors import CommandError
from arcp_trio.store.errors import (
    CorruptStore,
    ForeignFile,
    OtherVersion,
    StoreError,
    StoreInUse,
)

_ADVICE: Final[dict[type[StoreError], str]] = {
    StoreInUse: "stop that runtime, or choose another --data",
    ForeignFile: "move it away, or choose another --data",
    OtherVersion: "use that version, or choose another --data",
    CorruptStore: "put a copy in its place, or move it away to begin with an empty one",
}
_OTHER_ADVICE: Final = "choose another --data"


def store_path(folder: str | Path) -> Path:
    """Return the path of the store in the folder."""
    return Path(folder) / "arcp.db"


def token_path(folder: str | Path) -> Path:
    """Return the path of the token that `serve` makes and keeps in the folder."""
    return Path(folder) / "token"


def unusable_store(error: StoreError) -> CommandError:
    """Return the failure that says why the store cannot be used, and what to do."""
    said = " ".join(str(error).split())
    return CommandError(f"{said}; {_ADVICE.get(type(error), _OTHER_ADVICE)}")
