"""Which paths a contained program sees, and which it may write: from its lease, without I/O.

A program never sees more than the lease grants. Mounts can say two kinds of patterns: `/dir/**`,
which is a tree, and a pattern without any `*`, which is one file. Paths of other patterns are left
to requests that the runtime decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from attrs import frozen

from arcp_trio.authority.lease import Lease
from arcp_trio.authority.patterns import Pattern
from arcp_trio.authority.subset import uncovered

MOST_LEASED: Final = 256
"""Leased paths that are mounted, at most; further ones are left to requests."""

_TREE: Final = "/**"


@frozen(kw_only=True)
class Mount:
    """A path that the program sees under its own name."""

    path: str
    writable: bool = False
    is_tree: bool = True
    """Whether it is a folder with all that is in it, and not a single file."""


@frozen(kw_only=True)
class Mask:
    """A path below a mount that the program does not see."""

    path: str


Layer: TypeAlias = Mount | Mask


def leased(lease: Lease, reserved: Sequence[str] = ()) -> list[Mount]:
    """Return what a lease grants that can be mounted.

    What is mounted can be read, and a path is writable only if it may be both read and written.

    Args:
        lease: what the job may do.
        reserved: paths that no lease opens, with all that is below them.
    """
    readable = lease.grants.get("fs.read", ())
    writable = lease.grants.get("fs.write", ())
    mounts: dict[str, Mount] = {}
    for pattern in (*readable, *writable):
        if _covered(pattern, readable):
            mount = _mount(pattern, writable=_covered(pattern, writable))
            if mount is not None and not within(mount.path, reserved):
                mounts[pattern.text] = mount
    return without_repeats(mounts.values())[:MOST_LEASED]


def arranged(mounts: Iterable[Mount], reserved: Sequence[str]) -> list[Layer]:
    """Return mounts and masks in the order in which they are made, parents first."""
    kept = without_repeats(mounts)
    trees = [mount.path for mount in kept if mount.is_tree]
    masks = [Mask(path=path) for path in reserved if within(path, trees)]
    hidden = [mask.path for mask in masks]
    # A mount that goes without saying is made again if a mask has hidden it.
    again = [mount for mount in mounts if mount not in kept and within(mount.path, hidden)]
    layers: list[Layer] = [*masks, *kept, *again]
    return sorted(layers, key=lambda layer: _depth(layer.path))


def without_repeats(mounts: Iterable[Mount]) -> list[Mount]:
    """Return the mounts without those that are in another's tree, and not writable beyond it."""
    kept: list[Mount] = []
    for mount in sorted(mounts, key=lambda each: (_depth(each.path), not each.writable)):
        trees = [each.path for each in kept if each.is_tree and each.writable >= mount.writable]
        if mount not in kept and not within(mount.path, trees):
            kept.append(mount)
    return kept


def within(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of the folders, or below one."""
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in folders)


def parents(path: str) -> Iterator[str]:
    """Yield the folders above a path, the nearest first."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path


def _covered(pattern: Pattern, patterns: Sequence[Pattern]) -> bool:
    return uncovered([pattern], patterns) is None


def _mount(pattern: Pattern, *, writable: bool) -> Mount | None:
    is_tree = pattern.text.endswith(_TREE)
    path = pattern.text.removesuffix(_TREE) or "/"
    # A program that decodes percent-encoded characters would read another path.
    if not path.startswith("/") or "*" in path or "%" in path:
        return None
    return Mount(path=path, writable=writable, is_tree=is_tree)


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")
