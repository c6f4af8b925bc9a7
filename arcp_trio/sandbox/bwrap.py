"""What bubblewrap is told: the arguments that make a sandbox."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from arcp_trio.sandbox.plan import Layer, Mask, Mount, arranged, upwards

TMP: Final = "/tmp"  # noqa: S108 - the sandbox's own
SHARED: Final = "/dev/shm"  # noqa: S108 - the sandbox's own, too
TMP_BYTES: Final = 1024 * 1024 * 1024
"""How much may be in the sandbox's own /tmp, which is memory."""

SHARED_BYTES: Final = 64 * 1024 * 1024
"""The same of its /dev/shm, through which processes share memory."""

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/opt"),
    *("/etc/ssl", "/etc/ca-certificates", "/etc/pki", "/etc/alternatives", "/etc/ld.so.cache"),
    *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/nsswitch.conf"),
    *("/etc/hosts", "/etc/passwd", "/etc/group"),
)
"""What programs need of the system; every contained program can read it."""

_NAMESPACES: Final = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
    *("--cap-drop", "ALL", "--hostname", "agent"),
)


def arguments(mounts: Sequence[Mount], reserved: Sequence[str], cwd: str) -> list[str]:
    """Return bubblewrap's arguments, but its program and the descriptors that it is given.

    Args:
        mounts: what the program sees beside the system's own files.
        reserved: paths that it does not see even so.
        cwd: the folder that it starts in, which is empty if it is not mounted.
    """
    # /sys cannot be seen, and these two are the sandbox's own.
    hidden = [path for path in reserved if path not in {"/proc", "/dev"} and _is_there(path)]
    links = [each for path in hidden for each in upwards(path) if Path(each).is_symlink()]
    system = [Mount(path=path, is_tree=Path(path).is_dir()) for path in SYSTEM if _is_there(path)]
    layers = arranged([*system, *mounts], hidden, ["/proc", "/dev", TMP, *links])
    root = [layer for layer in layers if layer.path == "/"]
    others = [layer for layer in layers if layer.path != "/"]
    return [
        *_NAMESPACES,
        *_words(root),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(SHARED_BYTES), "--tmpfs", SHARED, "--remount-ro", "/dev"),
        *("--size", str(TMP_BYTES), "--tmpfs", TMP),
        *_words(others),
        *("--dir", cwd),
        *_closed(layers),
        *("--chdir", cwd),
    ]


def _words(layers: Sequence[Layer]) -> Iterator[str]:
    for layer in layers:
        match layer:
            case Mask():
                yield from _mask(layer.path)
            case Mount():
                yield from ("--bind" if layer.writable else "--ro-bind", layer.path, layer.path)


def _mask(path: str) -> Sequence[str]:
    if Path(path).is_dir():
        return ("--size", "65536", "--tmpfs", path)
    return ("--ro-bind", os.devnull, path)


def _closed(layers: Sequence[Layer]) -> Iterator[str]:
    """Make the sandbox's own folders read-only: they are memory without a bound."""
    for layer in layers:
        if isinstance(layer, Mask) and Path(layer.path).is_dir():
            yield from ("--remount-ro", layer.path)
    if not any(layer.path == "/" for layer in layers):
        yield from ("--remount-ro", "/")


def _is_there(path: str) -> bool:
    return os.path.exists(path)  # noqa: PTH110 - without an exception for what may not be read
