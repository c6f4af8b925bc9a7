"""Letting the programs of a running sandbox write a single file that they could only read."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from arcp_trio.transport.starting import start
from arcp_trio.wire.errors import clip

ENTER_SECONDS: Final = 20.0
"""How long a change of the sandbox's mounts may take."""
FIND_SECONDS: Final = 2.0
"""How long a mount is looked for whose folder is being renamed all the time."""

# Run by a Python of its own, which joins the mounts of the sandbox. Without privileges, the
# namespace of users that they belong to is entered first. A mount of the file alone, writable, is
# put on the file. All is done by descriptors, as names can get another meaning meanwhile: what
# ends a mount takes it from the folder of descriptors, opened while `/proc` was still its own.
_PROGRAM: Final = """
import ctypes, fcntl, os, stat, sys, time
NEWUSER, NEWNS, GET_USERNS = 0x10000000, 0x20000, 0xb701
OPEN_TREE, MOVE_MOUNT, OPENAT2, MOUNT_SETATTR = 428, 429, 437, 442
NO_LINKS, EMPTY_PATH, READ_ONLY, DETACH = 0x06, 0x1000, 1, 2
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
mounts, what, path, device, inode, mount = sys.argv[1:]
mounts = int(mounts)
process = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
try:
    checked(libc.setns(mounts, NEWNS))
except PermissionError:
    checked(libc.setns(fcntl.ioctl(mounts, GET_USERNS), NEWUSER))
    checked(libc.setns(mounts, NEWNS))
def lines(name):
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), "rb") as told:
        return told.read().splitlines()
def mount_of(file):
    return next(each.split()[1].decode() for each in lines(f"fdinfo/{file}") if b"mnt_id:" in each)
def place_of(mount):
    for each in lines("mountinfo"):
        fields = each.split()
        if fields[0].decode() == mount:
            first, *escaped = fields[4].split(b"\\\\")
            return first + b"".join(bytes([int(each[:3], 8)]) + each[3:] for each in escaped)
def opened(path):
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, 0, NO_LINKS)
    return call(OPENAT2, -100, path, how, ctypes.sizeof(how))
if what == "open":
    file = opened(os.fsencode(path))
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or (str(found.st_dev), str(found.st_ino)) != (device, inode):
        raise OSError("it is another file in the sandbox")
    tree = call(OPEN_TREE, file, b"", 1 | os.O_CLOEXEC | EMPTY_PATH)
    attributes = (ctypes.c_uint64 * 4)(0, READ_ONLY, 0, 0)
    call(MOUNT_SETATTR, tree, b"", EMPTY_PATH, attributes, ctypes.sizeof(attributes))
    call(MOVE_MOUNT, tree, b"", file, b"", 0x44)
    os.write(1, mount_of(tree).encode())
else:
    until = time.monotonic() + float(path)
    while (place := place_of(mount)) is not None:  # it goes with a file that is removed
        try:
            file = opened(place)
        except OSError:
            file = None  # it has just been moved
        if file is not None and mount_of(file) == mount:
            os.chdir(process)
            checked(libc.umount2(f"fd/{file}".encode(), DETACH))
            break
        if file is not None:
            os.close(file)
        if time.monotonic() > until:
            raise OSError("the file is not where it was")
"""


async def open_for_writing(sandbox: int, path: str, file: os.stat_result) -> int:
    """Let the programs of a sandbox write a file, under a path without links; return the mount.

    Args:
        sandbox: the pidfd of its first process.
        path: the file, which they see already.
        file: what it has to be.

    Raises:
        TimeoutError: it takes too long, and may be done all the same.
        OSError: that is not possible.
    """
    return int(await _change(sandbox, "open", path, str(file.st_dev), str(file.st_ino), ""))


async def close_for_writing(sandbox: int, mount: int) -> None:
    """Take back what `open_for_writing` has done, wherever the file is now, if it is anywhere.

    Who has the file open can still write it.

    Raises:
        OSError: that is not possible.
    """
    with suppress(ProcessLookupError):
        await _change(sandbox, "close", str(FIND_SECONDS), "", "", str(mount))


async def _change(sandbox: int, *what: str) -> bytes:
    mounts = _mounts(sandbox)
    try:
        helper = await start(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(mounts), *what],
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
        raise TimeoutError("the sandbox cannot be changed in time") from error
    finally:
        await helper.kill()  # noqa: ASYNC102 - bounds and shields itself
        await helper.close()  # noqa: ASYNC102 - does not wait
    return said


def _mounts(sandbox: int) -> int:
    """Open the mount namespace of a process, which must not have ended."""
    lines = Path(f"/proc/self/fdinfo/{sandbox}").read_text().splitlines()
    known = dict(line.split(":", 1) for line in lines)
    try:
        mounts = os.open(f"/proc/{int(known['Pid'])}/ns/mnt", os.O_RDONLY)
    except FileNotFoundError:
        raise ProcessLookupError("the sandbox has ended") from None
    # Its number cannot have become that of another process while it is not over.
    ended, _, _ = select.select([sandbox], [], [], 0)
    if ended:
        os.close(mounts)
        raise ProcessLookupError("the sandbox has ended")
    return mounts
