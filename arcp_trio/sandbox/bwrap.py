"""What bubblewrap is told: the arguments that make a sandbox."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from arcp_trio.sandbox.launcher import STAGE, WRITABLE
from arcp_trio.sandbox.plan import Layer, Mask, Mount, arranged, within

TMP: Final = "/tmp"  # noqa: S108 - the sandbox's own
SHARED: Final = "/dev/shm"  # noqa: S108 - the sandbox's own, too
TMP_BYTES: Final = 1024 * 1024 * 1024
"""How much may be in the sandbox's own /tmp, which is memory."""

SHARED_BYTES: Final = 64 * 1024 * 1024
"""The same of its /dev/shm, through which processes share memory."""

SYSTEM: Final = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/opt"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/nsswitch.conf", "/etc/hosts", "/etc/passwd", "/etc/group"),
    # Certificates, and how to use them; private keys are beside them.
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem", "/etc/ssl/openssl.cnf"),
    *("/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/tls/openssl.cnf"),
    *("/etc/pki/tls/openssl.d", "/etc/pki/ca-trust/extracted", "/etc/pki/java"),
    *("/etc/ca-certificates", "/var/lib/ca-certificates", "/etc/crypto-policies"),
)
"""What programs need of the system; every contained program can read it."""

SOCKETS: Final = ("/run", "/var/run")
"""Where the machine's services listen, and start programs: a lease of `/**` does not show these."""

SANDBOX_USER: Final = 65520
"""The user of contained programs if this process is root; no system gives it an account."""
NOBODY: Final = 65534
"""The user that these programs believe to be, which has a name."""

_NAMESPACES: Final = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
    *("--cap-drop", "ALL", "--hostname", "agent"),
)


@frozen(kw_only=True)
class Build:
    """How a sandbox is built."""

    bwrap: str
    """Bubblewrap's own program."""
    arguments: Sequence[str]
    """Bubblewrap's arguments, but its program and the descriptors that it is given."""
    staged: Sequence[str] = ("",)
    """The words that the launcher is told: the user that builds it, and what to mount for it."""


def build(
    bwrap: str, mounts: Sequence[Mount], reserved: Sequence[str], cwd: str, user: int | None
) -> Build:
    """Return how a sandbox is built.

    Args:
        bwrap: bubblewrap's own program.
        mounts: what the program sees beside the system's own files.
        reserved: paths that it does not see even so, and where those lead that are links.
        cwd: the folder that it starts in, which is empty if it is not mounted.
        user: the one that builds it; None: that of this process.
    """
    # /sys cannot be seen, and these two are the sandbox's own.
    hidden = [path for path in reserved if path not in {"/proc", "/dev"} and _is_place(path)]
    hidden += [path for path in SOCKETS if _is_place(path)]
    system = [Mount(path=path, is_tree=Path(path).is_dir()) for path in SYSTEM if _is_there(path)]
    layers = arranged([*system, *mounts], hidden, ["/proc", "/dev", TMP])
    root = [layer for layer in layers if layer.path == "/"]
    others = [layer for layer in layers if layer.path != "/"]
    own = [each for each in layers if isinstance(each, Mount) and not within(each.path, SYSTEM)]
    staged = () if user is None else tuple(enumerate(own))
    places = {mount.path: f"{STAGE}/{number}" for number, mount in staged}
    words = [
        *_NAMESPACES,
        *(() if user is None else ("--uid", str(NOBODY), "--gid", str(NOBODY))),
        *_words(root, places),
        # Read-only, as some of its files change the machine, and belong to root.
        *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev"),
        *("--size", str(SHARED_BYTES), "--tmpfs", SHARED, "--remount-ro", "/dev"),
        *("--size", str(TMP_BYTES), "--tmpfs", TMP),
        *_words(others, places),
        *("--dir", cwd),
        *_closed(layers),
        *("--chdir", cwd),
    ]
    if user is None:
        return Build(bwrap=bwrap, arguments=words)
    told = [str(user), "bwrap", bwrap, ""]
    for number, mount in staged:
        told += [str(number), mount.path, WRITABLE if mount.writable else ""]
    return Build(bwrap=f"{STAGE}/bwrap", arguments=words, staged=told)


def _words(layers: Sequence[Layer], places: Mapping[str, str]) -> Iterator[str]:
    for layer in layers:
        match layer:
            case Mask():
                yield from _mask(layer.path)
            case Mount(path=path):
                how = "--bind" if layer.writable else "--ro-bind"
                yield from (how, places.get(path, path), path)


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


def _is_place(path: str) -> bool:
    """Whether something is at a path, and no link on the way to it."""
    return _is_there(path) and os.path.realpath(path) == path
