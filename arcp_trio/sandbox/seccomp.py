"""The filter of system calls: it refuses those that serve attacks, and that no program needs.

It is a program of the kernel's classic BPF. It looks at the number of a call and the lower halves
of arguments, which is all that the kernel reads of those that are looked at here.
"""

from __future__ import annotations

import errno
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

_ARCHITECTURES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""The column in the tables below, and how the kernel names the architecture."""

_DENIED: Final = {
    # Keys, which no namespace divides.
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # Namespaces and mounts.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_by_handle_at": (304, 265),
    # Other processes, and the machine.
    "ptrace": (101, 117),
    "perf_event_open": (298, 241),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "syslog": (103, 116),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "uselib": (134, None),
    "modify_ldt": (154, None),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "mbind": (237, 235),
    "get_mempolicy": (239, 236),
    "set_mempolicy": (238, 237),
}
"""Calls that are refused, by their numbers on each architecture."""
_MISSING: Final = {
    # Their arguments cannot be looked at; without them, libraries use `clone`, `openat` and so on.
    "clone3": (435, 435),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "openat2": (437, 437),
    "fchmodat2": (452, 452),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
"""Calls that are answered as by a kernel that does not have them, so that others are tried."""
_NETLINK, _ROUTE = 16, 0
_PROTOCOLS: Final = (0, 1, 6, 17, 58, 262)
"""The default, ICMP, TCP, UDP, ICMPv6, MPTCP. For others, the kernel loads modules."""
_NAMESPACES: Final = 0x7E020000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AS_OWNER: Final = 0o6000
"""A file of these modes is run as its owner, or in its group, by everybody outside."""
_MAKES_FILE: Final = 0x400040
_X32: Final = 0x40000000
"""From here on, numbers are those of another way to call an x86-64 kernel."""

_NUMBER, _ARCHITECTURE = 0, 4
"""Where the kernel puts these two."""
_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL: Final = 0x80000000
_ERROR: Final = 0x00050000

Instruction: TypeAlias = tuple[int, int, int, int]
"""An operation, how many instructions it skips if so and if not, and its operand."""


def filter_of_calls(machine: str) -> bytes | None:
    """Return the filter for an architecture, as bubblewrap wants it; None if it is not known."""
    if machine not in _ARCHITECTURES or sys.maxsize < 2**32:
        return None
    column, name = _ARCHITECTURES[machine]
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, name),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        *_if(_AT_LEAST, _X32, _refuse(errno.ENOSYS)),
    ]
    denied = [(numbers, _refuse(errno.EPERM)) for numbers in _DENIED.values()]
    missing = [(numbers, _refuse(errno.ENOSYS)) for numbers in _MISSING.values()]
    looked_at = [(numbers, look) for *numbers, look in _LOOKED_AT.values()]
    for numbers, then in [*denied, *missing, *looked_at]:
        number = numbers[column]
        program += [] if number is None else _if(_EQUAL, number, then)
    return b"".join(struct.pack("HBBI", *each) for each in [*program, *_ALLOW])


def _if(operation: int, operand: int, then: Sequence[Instruction]) -> list[Instruction]:
    return [(operation, 0, len(then), operand), *then]


def _argument(number: int) -> Instruction:
    return (_LOAD, 0, 0, 16 + 8 * number)


def _refuse(code: int) -> list[Instruction]:
    return [(_RETURN, 0, 0, _ERROR | code)]


def _refuse_any_of(argument: int, bits: int) -> list[Instruction]:
    return [_argument(argument), *_if(_ANY_OF, bits, _refuse(errno.EPERM)), *_ALLOW]


def _refuse_equal(argument: int, *values: int) -> list[Instruction]:
    refused = [each for value in values for each in _if(_EQUAL, value, _refuse(errno.EPERM))]
    return [_argument(argument), *refused, *_ALLOW]


def _refuse_mode(flags: int) -> list[Instruction]:
    """Look at the mode of a file only if the argument before it says that one is made."""
    return [
        _argument(flags),
        *_if(_ANY_OF, _MAKES_FILE, _refuse_any_of(flags + 1, _AS_OWNER)),
        *_ALLOW,
    ]


_ALLOW: Final[list[Instruction]] = [(_RETURN, 0, 0, 0x7FFF0000)]

_INTERNET: Final = [
    _argument(2),
    *(each for protocol in _PROTOCOLS for each in _if(_EQUAL, protocol, _ALLOW)),
    *_refuse(errno.EPROTONOSUPPORT),
]
_SOCKET: Final = [
    _argument(0),
    *_if(_EQUAL, socket.AF_UNIX, _ALLOW),
    *_if(_EQUAL, socket.AF_INET, _INTERNET),
    *_if(_EQUAL, socket.AF_INET6, _INTERNET),
    # By which a program looks at the interfaces of its own network.
    *_if(_EQUAL, _NETLINK, [_argument(2), *_if(_EQUAL, _ROUTE, _ALLOW)]),
    *_refuse(errno.EAFNOSUPPORT),
]
_PERSONALITY: Final = [
    _argument(0),
    *_if(_EQUAL, 0, _ALLOW),
    *_if(_EQUAL, 0xFFFFFFFF, _ALLOW),  # to ask which one it is
    *_refuse(errno.EPERM),
]
_LOOKED_AT: Final[Mapping[str, tuple[int | None, int | None, Sequence[Instruction]]]] = {
    "socket": (41, 198, _SOCKET),
    "socketpair": (53, 199, _SOCKET),
    "clone": (56, 220, _refuse_any_of(0, _NAMESPACES)),
    "ioctl": (16, 29, _refuse_equal(1, _TIOCSTI, _TIOCLINUX)),
    "personality": (135, 92, _PERSONALITY),
    "chmod": (90, None, _refuse_any_of(1, _AS_OWNER)),
    "fchmod": (91, 52, _refuse_any_of(1, _AS_OWNER)),
    "fchmodat": (268, 53, _refuse_any_of(2, _AS_OWNER)),
    "creat": (85, None, _refuse_any_of(1, _AS_OWNER)),
    "mknod": (133, None, _refuse_any_of(1, _AS_OWNER)),
    "mknodat": (259, 33, _refuse_any_of(2, _AS_OWNER)),
    "open": (2, None, _refuse_mode(1)),
    "openat": (257, 56, _refuse_mode(2)),
}
"""Calls of which an argument decides: their numbers, and the program that looks at it."""
