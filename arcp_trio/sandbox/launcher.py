"""Run as a program of its own: gives up what no sandbox may have, and becomes bubblewrap.

Root is given up for a user of its own. For this user, each staged file or folder is mounted below
`STAGE` as if its owner were that user: what a program changes there belongs to that owner on disk,
and the user owns nothing else on the machine. Only this process sees these mounts.

It is run by its path in a Python without site-packages, so it imports nothing of this package, and
little of Python's own: each module would take a part of a sandbox's start.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import sys
from collections.abc import Sequence
from typing import Final

STAGE: Final = "/sys"
"""A folder that nothing is leased of, and that sandboxes do not have."""
OUTPUT: Final = 9
"""The descriptor at which the program finds its output."""
OPEN_FILES: Final = 4096
"""How many files a contained process may have open."""
WRITABLE: Final = "writable"

_KEYCTL: Final = {"x86_64": 250, "aarch64": 219}
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_CLONE, _RECURSIVE, _EMPTY_PATH, _FROM_EMPTY_PATH = 1, 0x8000, 0x1000, 4
_HERE: Final = -100
_ID_MAPPED: Final = 0x100000
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000
_PRIVATE: Final = (1 << 18) | (1 << 14)
_DEATH_SIGNAL, _SIGKILL = 1, 9
_LAST_ID: Final = 2**32 - 2

_libc: Final = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become the program that the arguments name; the first is a descriptor of a file of words.

    These are the user to become, nothing if it is the same; and of each thing to mount the name
    below `STAGE`, the path, and whether it is writable. Each word ends with a zero byte.
    """
    with os.fdopen(int(sys.argv[1]), "rb") as reader:
        user, *staged = os.fsdecode(reader.read()).split("\0")[:-1]
    # Without it the program would possess the keys of the session that this was started in.
    machine = os.uname().machine
    if machine in _KEYCTL:
        _libc.syscall(_KEYCTL[machine], 1, None)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = OPEN_FILES if most == resource.RLIM_INFINITY else min(OPEN_FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if user:
        try:
            _stage(int(user), staged)
            _become(int(user))
        except OSError as error:
            sys.exit(
                f"as root, programs are started as another user, and that fails: {error.strerror};"
                " run this as a user that is not root"
            )
    # Bubblewrap stays while the program runs, and keeps its own output open: nobody would notice
    # that the program has closed its own. What it is given beside that it passes on, and closes.
    os.dup2(1, OUTPUT)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is wanted


def _stage(user: int, staged: Sequence[str]) -> None:
    users: dict[tuple[int, int], int] = {}
    _call("unshare", _libc.unshare(_NEW_MOUNTS))
    _call("mount", _libc.mount(b"none", b"/", None, _PRIVATE, None))
    _call("mount", _libc.mount(b"none", STAGE.encode(), b"tmpfs", 0, b"mode=755"))
    for name, path, access in zip(staged[::3], staged[1::3], staged[2::3], strict=True):
        flags = _CLONE | _RECURSIVE | os.O_CLOEXEC
        tree = _call(path, _libc.syscall(_OPEN_TREE, _HERE, os.fsencode(path), flags))
        found = os.fstat(tree)
        owner = (found.st_uid, found.st_gid)
        if owner not in users:
            users[owner] = _users(*(_swapped(each, user) for each in owner))
        # If a program can only read it, it can do so where everybody can.
        if not _map(tree, users[owner]) and access == WRITABLE:
            _call(f"the file system of {path} lets no other user write as its owner", -1)
        place = f"{STAGE}/{name}"
        if stat.S_ISDIR(found.st_mode):
            os.mkdir(place)  # noqa: PTH102 - without the module
        else:
            os.close(os.open(place, os.O_CREAT))
        moved = _libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(place), _FROM_EMPTY_PATH)
        _call(path, moved)
        os.close(tree)


def _map(tree: int, users: int) -> bool:
    """Have files of a mount belong to others as a namespace says; return whether that is done."""
    asked = (ctypes.c_uint64 * 4)(_ID_MAPPED, 0, 0, users)
    # Of what is mounted in it, some may not be able to.
    return any(
        _libc.syscall(_MOUNT_SETATTR, tree, b"", how, ctypes.byref(asked), 32) == 0
        for how in (_EMPTY_PATH | _RECURSIVE, _EMPTY_PATH)
    )


def _swapped(owner: int, user: int) -> str:
    """Return a mapping of identifiers: the owner's is the user's, and nobody else's is."""
    low, high = min(owner, user), max(owner, user)
    same = [(0, low), (low + 1, high - low - 1), (high + 1, _LAST_ID - high)]
    lines = [f"{first} {first} {count}\n" for first, count in same if count > 0]
    return "".join([f"{owner} {user} 1\n", *lines])


def _users(users: str, groups: str) -> int:
    """Return a namespace of users with these mappings."""
    ready, is_ready = os.pipe()
    hold, over = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(over)
        failed = _libc.unshare(_NEW_USERS)
        os.write(is_ready, b"x")
        os.read(hold, 1)
        os._exit(failed)
    os.read(ready, 1)
    try:
        for name, lines in (("uid_map", users), ("gid_map", groups)):
            with open(f"/proc/{child}/{name}", "w") as file:  # noqa: PTH123 - the same
                file.write(lines)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for each in (ready, is_ready, hold, over):
            os.close(each)
        os.waitpid(child, 0)


def _become(user: int) -> None:
    parent = os.getppid()
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # This was forgotten with the former user.
    _call("prctl", _libc.prctl(_DEATH_SIGNAL, _SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        sys.exit("the process that has started this has ended")


def _call(what: str, result: int) -> int:
    """Return the result of a call of the kernel's, unless it says that the call has failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


if __name__ == "__main__":
    main()
