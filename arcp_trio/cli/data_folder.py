"""The folder that --data names: what is in it, who finds it there, and an unusable store."""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from arcp_trio.cli.errors import CommandError, ExitCode
from arcp_trio.plainfile import open_plain
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
_MOST_ADDRESS_BYTES: Final = 4096

log = logging.getLogger(__name__)


def store_path(folder: str | Path) -> Path:
    """Return the path of the store in the folder."""
    return Path(folder) / "arcp.db"


def token_path(folder: str | Path) -> Path:
    """Return the path of the token that `serve` makes and keeps in the folder."""
    return Path(folder) / "token"


def key_path(folder: str | Path) -> Path:
    """Return the path of the key with which `serve` signs short-lived tokens."""
    return Path(folder) / "signing-key"


def agents_path(folder: str | Path) -> Path:
    """Return the path of what agents that are programs have in the folder."""
    return Path(folder) / "agents"


def address_path(folder: str | Path) -> Path:
    """Return the path of the address of the `serve` that uses the folder."""
    return Path(folder) / "address"


@contextmanager
def address_kept(folder: str | Path, url: str) -> Generator[None]:
    """Keep the address in the folder for the block.

    The file is locked meanwhile. The system takes the lock off when the process ends, however it
    ends, so nobody takes the file of a killed process for an address.
    """
    try:
        descriptor = _keep(address_path(folder), url)
    except OSError as error:
        facts = {"path": str(address_path(folder)), "error": str(error)}
        log.warning("address not kept for the client commands", extra=facts)
        yield
        return
    try:
        yield
    finally:
        path = address_path(folder)
        with suppress(OSError):  # somebody has removed it
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                path.unlink()
        os.close(descriptor)


def _keep(path: Path, url: str) -> int:
    """Write the whole file or nothing, for its owner alone; return it open and locked."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=".address-")
    try:
        os.write(descriptor, f"{url}\n".encode())
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        Path(draft).replace(path)
    except BaseException:
        os.close(descriptor)
        Path(draft).unlink(missing_ok=True)
        raise
    return descriptor


def kept_address(folder: str | Path) -> str | None:
    """Return the address of the `serve` that uses the folder, or None if none is running."""
    try:
        with open_plain(address_path(folder)) as file:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None  # nobody holds the lock: the process has ended
            text = file.read(_MOST_ADDRESS_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text or None


def unusable_store(error: StoreError, *, in_folder: bool = True) -> CommandError:
    """Return the failure that says why the store cannot be used, and what to do."""
    said = " ".join(str(error).split())
    if not in_folder:
        # What helps is part of it. A database that is away comes back: it is worth another try.
        away = type(error) is StoreError
        return CommandError(said, exit_code=ExitCode.FAILED if away else ExitCode.USAGE)
    return CommandError(f"{said}; {_ADVICE.get(type(error), _OTHER_ADVICE)}")
