"""System calls that contained programs cannot make, and that their programs work without them."""

from __future__ import annotations

import errno
import os
import platform
import struct
import sys
from pathlib import Path

import pytest
import trio

from arcp_trio.sandbox.seccomp import filter_of_calls
from tests.sandbox.inside import Inside

ALLOWED = 0x7FFF0000
KILLED = 0x80000000
X86_64, AARCH64 = ("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)
NEW_USERS, TIOCSTI, TIOCGWINSZ = 0x10000000, 0x5412, 0x5413

CALLS = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
for call in [(250, 0, -3, 0), (248, b"user", b"x", b"y", 1, -3), (272, NEW_USERS), (435, 0, 0),
             (56, NEW_USERS | 17, 0, 0, 0, 0), (0x40000000 + 39,), (16, 0, 0x5412, b"x"), (101, 0)]:
    print(libc.syscall(*call), errno.errorcode[ctypes.get_errno()])
for family in range(50):
    for kind in (1, 2, 3, 5):
        try:
            socket.socket(family, kind).close()
        except OSError as error:
            if error.errno != errno.EAFNOSUPPORT:
                print("other", family, kind, error)
        else:
            print("family", family)
""".replace("NEW_USERS", str(NEW_USERS))


def answer(kernel: tuple[str, int], number: int, *arguments: int) -> int:
    """Return what the filter for a machine answers to a call, as the kernel would work it out."""
    machine, architecture = kernel
    program = filter_of_calls(machine)
    assert program is not None
    data = struct.pack("<IIQ6Q", number, architecture, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    at, loaded = 0, 0
    while True:
        (operation, if_so, if_not, operand) = struct.unpack_from("HBBI", program, 8 * at)
        at += 1
        match operation:
            case 0x06:
                assert isinstance(operand, int)
                return operand
            case 0x20:
                (loaded,) = struct.unpack_from("<I", data, operand)
            case 0x15:
                at += if_so if loaded == operand else if_not
            case 0x35:
                at += if_so if loaded >= operand else if_not
            case 0x45:
                at += if_so if loaded & operand else if_not
            case _:
                pytest.fail(f"not an operation: {operation}")


def refused(code: int) -> int:
    """Return the filter's answer for an error."""
    return 0x00050000 | code


@pytest.mark.parametrize(
    ("kernel", "keyctl", "socket", "clone", "ioctl", "read", "fchmod", "openat"),
    [(X86_64, 250, 41, 56, 16, 0, 91, 257), (AARCH64, 219, 198, 220, 29, 63, 52, 56)],
)
def test_the_filter(
    kernel: tuple[str, int],
    keyctl: int,
    socket: int,
    clone: int,
    ioctl: int,
    read: int,
    fchmod: int,
    openat: int,
) -> None:
    """On each architecture, calls are refused by their numbers there, and some by an argument."""
    assert answer(kernel, read, 0, 0, 1) == ALLOWED
    assert answer(kernel, keyctl) == refused(errno.EPERM)
    assert answer(kernel, 435) == refused(errno.ENOSYS)
    assert answer(kernel, read | 0x40000000) == refused(errno.ENOSYS)
    families = [each for each in range(50) if answer(kernel, socket, each) == ALLOWED]
    assert families == [1, 2, 10, 16]
    assert answer(kernel, socket, 40) == refused(errno.EAFNOSUPPORT)
    assert answer(kernel, socket, 2, 1, 132) == refused(errno.EPROTONOSUPPORT)  # SCTP
    assert answer(kernel, socket, 10, 1, 6) == ALLOWED
    assert answer(kernel, socket, 16, 3, 9) == refused(errno.EAFNOSUPPORT)  # the audit's
    assert answer(kernel, clone, 17) == ALLOWED
    assert answer(kernel, clone, 17 | NEW_USERS) == refused(errno.EPERM)
    assert answer(kernel, ioctl, 0, TIOCGWINSZ) == ALLOWED
    # The kernel reads the lower half of this argument, so the upper one does not hide it.
    assert answer(kernel, ioctl, 0, TIOCSTI | 1 << 32) == refused(errno.EPERM)
    for mode, expected in ((0o755, ALLOWED), (0o4755, refused(errno.EPERM))):
        assert answer(kernel, fchmod, 3, mode) == expected
        for flags in (os.O_CREAT | os.O_RDWR, os.O_TMPFILE | os.O_RDWR):
            assert answer(kernel, openat, 0, 0, flags, mode) == expected
        assert answer(kernel, openat, 0, 0, os.O_RDWR, mode) == ALLOWED  # it is not read


def test_other_architectures() -> None:
    """A call by the numbers of another architecture ends the process, where one is known."""
    assert answer((X86_64[0], 0x40000003), 1) == KILLED
    assert answer((AARCH64[0], X86_64[1]), 1) == KILLED
    assert filter_of_calls("riscv64") is None


@pytest.mark.sandbox
@pytest.mark.real_tcp
async def test_calls_of_a_contained_program(tmp_path: Path) -> None:
    """The kernel applies the filter: to keys, namespaces, terminals, debuggers and sockets."""
    (tmp_path / "calls.py").write_text(CALLS)
    python = await trio.Path(sys.executable).resolve()
    inside = Inside(read=[tmp_path, str(python.parent.parent)])
    said = (await inside.run(f"{python} -I -S {tmp_path}/calls.py")).splitlines()
    if platform.machine() == "x86_64":
        expected = ["EPERM", "EPERM", "EPERM", "ENOSYS", "EPERM", "ENOSYS", "EPERM", "EPERM"]
        assert said[:8] == [f"-1 {code}" for code in expected]
    assert {line for line in said[8:] if line.startswith("family")} == {
        f"family {each}" for each in (1, 2, 10, 16)
    }


@pytest.mark.sandbox
@pytest.mark.real_tcp
async def test_files_that_others_run_as_their_owner(tmp_path: Path) -> None:
    """A program leaves no set-user-ID program in a leased folder, which may be root's."""
    (tmp_path / "old").touch(mode=0o755)
    lease = {"fs.read": [f"{tmp_path}/**"], "fs.write": [f"{tmp_path}/**"]}
    said = await Inside(lease=lease, cwd=tmp_path).run(
        "cp /bin/true new; chmod 4755 new old; chmod g+s old; chmod 700 old; mkdir d; chmod 1777 d"
    )
    assert said.count("Operation not permitted") == 3
    modes = [(tmp_path / name).stat().st_mode & 0o7777 for name in ("new", "old", "d")]
    assert modes == [0o755, 0o700, 0o1777]
