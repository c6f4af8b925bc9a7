"""Letting the programs of a running sandbox change a folder that they can only read, for a time.

They change a layer over it (overlayfs), which is memory: the folder itself stays as it is. Who has
opened it reads single files from the layer, and the rest is dropped.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

import trio

from arcp_trio.transport.starting import StartedProcess, start
from arcp_trio.wire.errors import clip

CHANGE_SECONDS: Final = 20.0
"""How long a change of the sandbox's mounts may take, or reading a file."""
LAYER_BYTES: Final = 64 * 1024 * 1024
"""How much may be in one layer."""
LAYER_FILES: Final = 16 * 1024
"""How many files and folders may be in one."""
MOST_OTHERS: Final = 100
"""Other changes in a layer that are told."""

_READ_BYTES: Final = 1024 * 1024

# Run by a Python of its own, which joins the sandbox: as the user of its programs, with privileges
# over its mounts and nothing else. In a copy of the mounts, which nobody else sees, it puts the
# layer over the folder, and over that what is mounted below the folder, as it may hide something.
# All of this gets into the sandbox in one step. Mounts are held by descriptors, as names can get
# another meaning meanwhile; those of this process are in a folder that was opened while `/proc` was
# still its own.
_PROGRAM: Final = """
import ctypes, fcntl, os, stat, sys
NEWUSER, NEWNS, GET_USERNS = 0x10000000, 0x20000, 0xb701
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSCONFIG, FSMOUNT, OPENAT2 = 428, 429, 430, 431, 432, 437
NO_LINKS, EMPTY_PATH, CLONE, BOTH_EMPTY, DETACH = 0x06, 0x1000, 0x88001, 0x44, 2
FLAG, STRING, CREATE, NO_SUID_NO_DEVICES, READ_ONLY, MOUNT_SETATTR = 0, 1, 6, 6, 1, 442
HERE = -100
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
    os.write(2, str(getattr(error, "strerror", None) or error).encode())
    os._exit(1)
sys.excepthook = say  # Python's own would import modules, which the sandbox may have written
mounts, path, alone, size, files, most = map(os.fsencode, sys.argv[1:])
mounts = int(mounts)
process = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
def lines(name):
    with open(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process), "rb") as told:
        return told.read().splitlines()
def mount_of(file):
    return next(each.split()[1] for each in lines(f"fdinfo/{file}") if b"mnt_id:" in each)
def opened(path, flags=os.O_PATH, at=HERE):
    how = (ctypes.c_uint64 * 3)(flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0, NO_LINKS)
    return call(OPENAT2, at, path, how, ctypes.sizeof(how))
def unescaped(place):
    first, *rest = place.split(b"\\\\")
    return first + b"".join(bytes([int(each[:3], 8)]) + each[3:] for each in rest)
def cloned(file):
    return call(OPEN_TREE, file, b"", CLONE | EMPTY_PATH)
def put(tree, place):
    call(MOVE_MOUNT, tree, b"", place, b"", BOTH_EMPTY)
def made(kind, **options):
    context = call(FSOPEN, kind, 0)
    for name, value in options.items():
        call(FSCONFIG, context, STRING if value else FLAG, name.encode(), value or None, 0)
    call(FSCONFIG, context, CREATE, None, None, 0)
    return call(FSMOUNT, context, 0, NO_SUID_NO_DEVICES)
try:
    os.setgroups([])
except PermissionError:
    pass  # this is not root, or not with all that root may do
checked(libc.setns(fcntl.ioctl(mounts, GET_USERNS), NEWUSER))
(user, *_), (group, *_) = (lines(each)[0].split() for each in ("uid_map", "gid_map"))
os.setresgid(*[int(group)] * 3)
os.setresuid(*[int(user)] * 3)
checked(libc.setns(mounts, NEWNS))
place = opened(path)
checked(libc.unshare(NEWNS))
folder = opened(path)
found = os.fstat(folder)
if not stat.S_ISDIR(found.st_mode) or not os.path.samestat(found, os.fstat(place)):
    raise OSError("it is another folder in the sandbox")
inside = path.rstrip(b"/") + b"/"
rows = [each.split() for each in lines("mountinfo")]
below = {unescaped(row[4]): row[0] for row in rows if row[1] == mount_of(folder)}
below = {each: mount for each, mount in below.items() if each.startswith(inside)}
trees = {}
for each, mount in below.items():
    if not any(each.startswith(other + b"/") for other in below):  # what is over it is put there
        file = opened(each)
        if mount_of(file) != mount:
            raise OSError("its mounts change")
        trees[each[len(inside):]] = cloned(file)
scratch = made(b"tmpfs", size=size, nr_inodes=files, mode=b"700")
put(scratch, folder)
os.mkdir("work", dir_fd=scratch)
os.mkdir("upper", dir_fd=scratch)
upper = os.open("upper", os.O_RDONLY | os.O_CLOEXEC, dir_fd=scratch)
try:
    os.fchown(upper, found.st_uid, found.st_gid)
except OSError:
    pass  # the sandbox does not know its owner
os.fchmod(upper, found.st_mode & 0o777)
if alone in trees:  # what is mounted cannot be replaced, a copy can
    del trees[alone]
    source = opened(alone, os.O_RDONLY, folder)
    copy = os.open(alone, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=upper)
    with open(source, "rb") as reader, open(copy, "wb") as writer:
        writer.write(reader.read())
        os.fchmod(copy, os.fstat(source).st_mode & 0o777)
os.fchdir(process)
lower, own = b"fd/%d" % folder, b"fd/%d/" % scratch
layers = {"lowerdir": lower, "upperdir": own + b"upper", "workdir": own + b"work"}
over = made(b"overlay", userxattr=b"", **layers)
put(over, folder)
for each, tree in trees.items():
    put(tree, opened(each, at=over))
tree = cloned(over)
checked(libc.setns(mounts, NEWNS))
put(tree, place)
for each in (over, folder, scratch):
    os.close(each)
shown, known = [tree], {}
def state(name):
    try:
        file = opened(name, at=upper)
    except OSError:
        return None
    found = os.fstat(file)
    os.close(file)
    if stat.S_ISREG(found.st_mode):
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
def added(name):
    known[name] = state(name)
    try:  # who has been in the folder before does not see the layer, and sees this file of it
        file = opened(name, at=tree)
        if stat.S_ISREG(os.fstat(file).st_mode):
            put(clone := cloned(file), opened(name, at=place))
            shown.append(clone)
    except OSError:
        pass  # it is not there yet
    return b""
def read(name):
    now = state(name)
    if now is not None and now != known[name]:
        known[name] = now
        with open(opened(name, os.O_RDONLY | os.O_NONBLOCK, upper), "rb") as reader:
            return reader.read() if stat.S_ISREG(os.fstat(reader.fileno()).st_mode) else None
def others(folder, inside=b"", depth=0):
    for each in os.scandir(folder):
        name = inside + os.fsencode(each.name)
        if each.is_dir(follow_symlinks=False) and depth < 100:
            file = os.open(each.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            yield from others(file, name + b"/", depth + 1)
            os.close(file)
        elif name not in known or known[name] != state(name):
            yield name
def answer(data):
    sys.stdout.buffer.write(b"-\\n" if data is None else b"%d\\n%s" % (len(data), data))
    sys.stdout.flush()
answer(b"")
todo = {b"+": added, b"?": read}
while word := sys.stdin.buffer.readline():
    name = bytes.fromhex(word[1:].decode())
    answer(todo[word[:1]](name))
os.fchdir(process)
for each in reversed(shown):
    # Who is still in the layer can no longer write, unless something is open for that.
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY, 0, 0, 0)
    libc.syscall(MOUNT_SETATTR, each, b"", EMPTY_PATH, attributes, ctypes.sizeof(attributes))
    libc.umount2(b"fd/%d" % each, DETACH)  # it may have gone with what it was on
told = [name for name, _ in zip(others(upper), range(int(most)))]
answer(b"".join(each + b"\\0" for each in told))
"""


class OpenFolder:
    """A folder that the programs of a sandbox can change as they see it."""

    def __init__(self, path: str, helper: StartedProcess) -> None:
        self.path: Final = path
        self.users = 0
        """How many edits it is open for; the last one closes it."""
        self._helper = helper
        self._said = bytearray()

    @classmethod
    async def open(cls, sandbox: int, path: str, name: str) -> Self:
        """Open a folder, which they see already, under a path without links.

        Args:
            sandbox: the pidfd of the first process of the sandbox.
            path: the folder.
            name: the first file in it that is to be changed.

        Raises:
            OSError: that is not possible, or not in time.
        """
        mounts = _mounts(sandbox)
        bounds = map(str, (LAYER_BYTES, LAYER_FILES, MOST_OTHERS))
        try:
            helper = await start(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, str(mounts), path, name, *bounds],
                stderr=subprocess.STDOUT,
                pass_fds=[mounts],
            )
        finally:
            os.close(mounts)
        opened = cls(path, helper)
        await opened._answer()
        return opened

    async def add(self, name: str) -> None:
        """Begin with a file as it is now; its name is relative to the folder."""
        await self._ask("+", name)

    async def read(self, name: str) -> bytes | None:
        """Return what a file has; None if that is not new since `add` and the last `read`.

        None, too, if it is not a regular file.
        """
        return await self._ask("?", name)

    async def close(self) -> list[str]:
        """Have programs see the folder itself again; return what else they have changed there."""
        assert self._helper.stdin is not None
        try:
            await self._helper.stdin.aclose()
            told = await self._answer() or b""
        finally:
            await self.abandon()  # noqa: ASYNC102 - bounds and shields itself
        return [os.fsdecode(each) for each in told.split(b"\0")[:-1]]

    async def abandon(self) -> None:
        """Give the layer up: programs may go on changing it, and nobody reads it."""
        await self._helper.kill()
        await self._helper.close()

    async def _ask(self, what: str, name: str) -> bytes | None:
        assert self._helper.stdin is not None
        word = f"{what}{os.fsencode(name).hex()}\n"
        try:
            await self._helper.stdin.send_all(word.encode())
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise OSError("the sandbox is not changed any more") from error
        return await self._answer()

    async def _answer(self) -> bytes | None:
        """Return what the helper answers: its size in a line, or no size, and then itself."""
        answered = False
        try:
            with trio.fail_after(CHANGE_SECONDS):
                while b"\n" not in self._said:
                    await self._receive()
                first, _, self._said = self._said.partition(b"\n")
                head = first.decode(errors="replace")
                if head != "-" and not head.isdecimal():
                    raise OSError(f"the sandbox cannot be changed: {clip(head)}")
                size = None if head == "-" else int(head)
                while size is not None and len(self._said) < size:
                    await self._receive()
            answered = True
        except trio.TooSlowError as error:
            raise OSError("the sandbox cannot be changed in time") from error
        finally:
            if not answered:
                await self.abandon()  # noqa: ASYNC102 - bounds and shields itself
        if size is None:
            return None
        data, self._said = bytes(self._said[:size]), self._said[size:]
        return data

    async def _receive(self) -> None:
        try:
            part = await self._helper.stdout.receive_some(_READ_BYTES)
        except trio.ClosedResourceError as error:
            raise OSError("the sandbox is not changed any more") from error
        self._said += part
        if not part:
            why = self._said.decode(errors="replace").strip().rpartition("\n")[2]
            raise OSError(f"the sandbox cannot be changed: {clip(why) or 'it has ended'}")


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
