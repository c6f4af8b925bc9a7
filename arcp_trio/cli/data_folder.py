"""The folder that --data names: what is in it, who finds it there, and an unusable store."""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from arcp_trio.cli.defaults import DATA
from arcp_trio.cli.errors import PROGRAM, CommandError, ExitCode
from arcp_trio.plainfile import open_plain
from arcp_trio.store.errors import (
    CorruptStore,
    ForeignFile,
    OtherVersion,
    StoreError,
    StoreInUse,
)

_ADVICE: Final[dict[type[StoreError], str]] = {
    StoreInUse: f"{PROGRAM} stop ends it, or choose another --data",
    ForeignFile: "move it away, or choose another --data",
    OtherVersion: "use that version, or choose another --data",
    CorruptStore: "put a copy in its place, or move it away to begin with an empty one",
}
_OTHER_ADVICE: Final = "choose another --data"
_MOST_ADDRESS_BYTES: Final = 4096
_LOCK: Final = "hhqqi4x"
"""The kernel's `struct flock`: the kind of lock, where it begins, and the process that has it."""

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


def pid_path(folder: str | Path) -> Path:
    """Return the path of the process id of the `serve` that uses the folder."""
    return Path(folder) / "pid"


def find_folder(given: str | None, environment: Mapping[str, str]) -> Path:
    """Return the folder that --data names or, without it, the nearest one.

    That is `.arcp` in the current folder, or in one above it, or else the user's own place. Above
    the current folder, only what belongs to the user counts: every user may write to `/tmp`, and
    could put the address of their own runtime there.
    """
    if given is not None:
        return Path(given)
    here = Path(DATA)
    if here.is_dir():
        return here
    if (above := folder_above()) is not None:
        return above
    with suppress(OSError, RuntimeError):  # there is no home
        data_home = Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local/share")
        if _is_own(data_home / PROGRAM):
            return data_home / PROGRAM
    return here


def folder_above() -> Path | None:
    """Return the nearest `.arcp` of the user in a folder above the current one, if there is one."""
    with suppress(OSError):  # the current folder is gone
        above = (each / DATA for each in Path.cwd().parents)
        return next((path for path in above if _is_own(path)), None)
    return None


def _is_own(path: Path) -> bool:
    return path.is_dir() and path.stat().st_uid == os.geteuid()


# -- what a running `serve` keeps there


@contextmanager
def kept(path: Path, text: str) -> Generator[None]:
    """Keep a line in a file for the block.

    The file is locked until the process ends, however it ends, so nobody takes the file of a killed
    process for that of a running one.
    """
    try:
        descriptor = _keep(path, text)
    except OSError as error:
        facts = {"path": str(path), "error": str(error)}
        log.warning("not kept for the client commands", extra=facts)
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):  # somebody has removed it
            if os.path.samestat(path.stat(), os.fstat(descriptor)):
                path.unlink()


def _keep(path: Path, text: str) -> int:
    """Write the whole file or nothing, for its owner alone; return it open and locked."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        os.write(descriptor, f"{text}\n".encode())
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        Path(draft).replace(path)
    except BaseException:
        os.close(descriptor)
        Path(draft).unlink(missing_ok=True)
        raise
    return descriptor


def holder(file: BinaryIO) -> int | None:
    """Return the id of the process that keeps a file; None if that process has ended.

    The kernel knows it, whatever the file says. 0 is a process of another machine or container.
    """
    asked = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, process = struct.unpack(_LOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else max(process, 0)


def kept_address(folder: str | Path) -> str | None:
    """Return the address of the `serve` that uses the folder, or None if none is running."""
    try:
        with open_plain(address_path(folder)) as file:
            if holder(file) is None:
                return None
            text = file.read(_MOST_ADDRESS_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text or None


# -- an unusable store


def unusable_store(error: StoreError, *, in_folder: bool = True) -> CommandError:
    """Return the failure that says why the store cannot be used, and what to do."""
    said = " ".join(str(error).split())
    if not in_folder:
        # What helps is part of it. A database that is away comes back: it is worth another try.
        away = type(error) is StoreError
        return CommandError(said, exit_code=ExitCode.FAILED if away else ExitCode.USAGE)
    return CommandError(f"{said}; {_ADVICE.get(type(error), _OTHER_ADVICE)}")
