"""Letting the programs of a running sandbox write a single file that they could only read."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Final

import trio

from arcp_trio.transport.starting import start
from arcp_trio.wire.errors import clip

ENTER_SECONDS: Final = 20.0
"""How long a change of the sandbox's mounts may take."""

# Run by a Python of its own, which joins the mounts of the sandbox. Without privileges, the
# namespace of users that they belong to is entered first. A mount of the file alone, writable, is
# put on the file: all is done by descriptors, so that nothing else can take its place meanwhile.
_PROGRAM: Final = """
import ctypes, fcntl, os, stat, sys
NEWUSER, NEWNS, GET_USERNS = 0x10000000, 0x20000, 0xb701
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR = 428, 429, 437, 442
NO_LINKS, EMPTY_PATH, READ_ONLY = 0x06, 0x1000, 1
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
def call(number, *args):
    words = [ctypes.c_long(each) if isinstance(each, int) else each for each in args]
    return checked(libc.syscall(ctypes.c_long(number), *words))
def say(kind, error, traceback):
    os.write(2, str(error).encode())
    os._exit(1)
sys.excepthook = say  # Python's own would import modules, which the sandbox may have written
mounts, what, path, device, inode = sys.argv[1:]
mounts = int(mounts)
try:
    checked(libc.setns(mounts, NEWNS))
except PermissionError:
    checked(libc.setns(fcntl.ioctl(mounts, GET_USERNS), NEWUSER))
    checked(libc.setns(mounts, NEWNS))
how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, 0, NO_LINKS)
file = call(OPENAT2, -100, os.fsencode(path), how, ctypes.sizeof(how))
found = os.fstat(file)
if not stat.S_ISREG(found.st_mode) or (str(found.st_dev), str(found.st_ino)) != (device, inode):
    raise OSError("it is another file in the sandbox")
if what == "open":
    tree = call(OPEN_TREE, file, b"", 1 | os.O_CLOEXEC | EMPTY_PATH)
    attributes = (ctypes.c_uint64 * 4)(0, READ_ONLY, 0, 0)
    call(MOUNT_SETATTR, tree, b"", EMPTY_PATH, attributes, ctypes.sizeof(attributes))
    call(MOVE_MOUNT, tree, b"", file, b"", 0x44)
else:
    checked(libc.umount2(os.fsencode(path), 2 | 8))
"""


async def open_for_writing(sandbox: int, path: str, file: os.stat_result) -> None:
    """Let the programs of a sandbox write a file, under a path without links.

    Args:
        sandbox: the pidfd of its first process.
        path: the file, which they see already.
        file: what it has to be.

    Raises:
        OSError: that is not possible.
    """
    await _change(sandbox, "open", path, file)


async def close_for_writing(sandbox: int, path: str, file: os.stat_result) -> None:
    """Take back what `open_for_writing` has done; who has the file open can still write it.

    Raises:
        OSError: that is not possible.
    """
    await _change(sandbox, "close", path, file)


async def _change(sandbox: int, what: str, path: str, file: os.stat_result) -> None:
    mounts = _mounts(sandbox)
    try:
        words = [str(each) for each in (mounts, what, path, file.st_dev, file.st_ino)]
        helper = await start(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, *words],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            pass_fds=[mounts],
        )
    finally:
        os.close(mounts)
    try:
        with trio.fail_after(ENTER_SECONDS):
            said = b"".join([part async for part in helper.stdout])
            await helper.wait()
        if helper.returncode != 0:
            why = said.decode(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"the sandbox cannot be changed: {clip(why)}")
    except trio.TooSlowError as error:
        raise OSError("the sandbox cannot be changed in time") from error
    finally:
        await helper.kill()  # noqa: ASYNC102 - bounds and shields itself
        await helper.close()  # noqa: ASYNC102 - does not wait


def _mounts(sandbox: int) -> int:
    """Open the mount namespace of a process, which must not have ended."""
    lines = Path(f"/proc/self/fdinfo/{sandbox}").read_text().splitlines()
    known = dict(line.split(":", 1) for line in lines)
    mounts = os.open(f"/proc/{int(known['Pid'])}/ns/mnt", os.O_RDONLY)
    # Its number cannot have become that of another process while it is not over.
    ended, _, _ = select.select([sandbox], [], [], 0)
    if ended:
        os.close(mounts)
        raise ProcessLookupError("the sandbox has ended")
    return mounts
