"""Files that agents open within their lease (§9.2, §9.3): what was authorised is what is opened.

The lease must allow two paths: the one that was given, and the real one, without any link. A
refusal names the first one only. The real path is then walked down from the root by directory
descriptors, and no link on it is followed: if there is one by then, it was put there since, and
opening fails. So bytes go to and come from an allowed path only, even if files are renamed or
replaced meanwhile.

This does not detect another name of the same file (a hard link) unless the file is reserved,
another file system mounted on an allowed path, or a directory that is moved out of an allowed one
while it is being walked. And the check is made when a file is opened; an open file stays open until
the block is left.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import trio

from arcp_trio.plainfile import open_parent
from arcp_trio.wire.errors import PermissionDenied, clip

if TYPE_CHECKING:
    from arcp_trio.authority.approvals import Approval
    from arcp_trio.runtime.job.job import Job

# Non-blocking: opening a FIFO would wait for its other end.
_FILE: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_FLAGS: Final = {
    "r": 0,
    "w": os.O_CREAT | os.O_TRUNC,
    "a": os.O_CREAT | os.O_APPEND,
    "x": os.O_CREAT | os.O_EXCL,
}
"""What the first letter of a mode adds to the way of access."""


async def open_file(job: Job, path: str, mode: str, approvals: Sequence[Approval] = ()) -> int:
    """Authorise and open a regular file, and return its descriptor; see `JobContext.open`."""
    named = _absolute(path)
    flags = _flags(mode)
    capabilities = _capabilities(mode)

    def authorize(*also: str) -> None:
        for capability in capabilities:
            job.authorize(capability, named, also=also, approvals=approvals)

    def opening() -> int:
        real = _real_path(named, new=bool(flags & os.O_EXCL))
        # At the last moment: the thread does nothing between this check and opening the file.
        trio.from_thread.run_sync(authorize, real)
        file = _open_regular(real, flags, named)
        try:
            _check_not_reserved(job, file, capabilities[0], named)
            if flags & os.O_TRUNC:
                os.ftruncate(file, 0)
        except BaseException:
            os.close(file)
            raise
        return file

    authorize()  # before anything is read, links included
    return await trio.to_thread.run_sync(opening)


def file_of(
    path: str, mode: str, *, encoding: str | None, errors: str | None, newline: str | None
) -> Callable[[int], IO[Any]]:
    """Return what makes a Python file of a descriptor that `open_file` returned.

    Raises:
        ValueError: the mode does not go with the other options; no file is touched.
    """
    if "b" in mode and (encoding, errors, newline) != (None, None, None):
        raise ValueError("a file in binary mode takes no encoding, errors or newline")

    def make(descriptor: int) -> IO[Any]:
        def opener(_path: str, _flags: int) -> int:
            return descriptor

        return open(path, mode, encoding=encoding, errors=errors, newline=newline, opener=opener)

    return make


def _flags(mode: str) -> int:
    """Return the flags that Python's `open` uses for a mode."""
    kinds = [letter for letter in mode if letter in _FLAGS]
    other = set(mode) - set(kinds)
    if len(kinds) != 1 or len(set(mode)) != len(mode) or other - set("+bt") or {*"bt"} <= other:
        raise ValueError(f"invalid mode: {clip(repr(mode))}")
    access = os.O_RDWR if "+" in mode else os.O_RDONLY if "r" in mode else os.O_WRONLY
    return _FLAGS[kinds[0]] | access


def _capabilities(mode: str) -> Sequence[str]:
    if "+" in mode:
        return ("fs.read", "fs.write")
    return ("fs.read",) if "r" in mode else ("fs.write",)


def _absolute(path: str) -> str:
    """Make a path absolute, and change nothing else: a `..` after a link means something else."""
    return path if path.startswith("/") else f"{Path.cwd()}/{path}"


def _real_path(path: str, *, new: bool) -> str:
    """Return the path without links. For a new file, only the directory is resolved."""
    directory, _, name = path.rpartition("/")
    if name in {"", ".", ".."}:
        raise PermissionDenied(f"{clip(repr(path))} names a directory")
    if new:
        return os.path.realpath(directory + "/").rstrip("/") + "/" + name
    return os.path.realpath(path)


def _open_regular(real: str, flags: int, named: str) -> int:
    """Open a real path without following any link; `named` is the path that errors name."""
    try:
        directory, name = open_parent(real)
        try:
            if not flags & os.O_EXCL:
                # Checked before it is opened: opening a device may have effects.
                with suppress(FileNotFoundError):
                    _check(os.stat(name, dir_fd=directory, follow_symlinks=False), named)
            # Truncated later, once it is known to be a regular file that is not reserved.
            file = os.open(name, flags & ~os.O_TRUNC | _FILE, 0o666, dir_fd=directory)
        finally:
            os.close(directory)
        try:
            _check(os.fstat(file), named)
            os.set_blocking(file, True)
        except BaseException:
            os.close(file)
            raise
    except OSError as error:
        error.filename = named
        raise
    return file


def _check_not_reserved(job: Job, file: int, capability: str, named: str) -> None:
    if job.core.reserved.holds(os.fstat(file)):
        raise PermissionDenied(f"no lease allows {capability} of {clip(repr(named))}")


def _check(found: os.stat_result, named: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise PermissionDenied(f"{clip(repr(named))} is {_kind(found.st_mode)}, not a regular file")


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
