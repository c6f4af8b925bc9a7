"""Which paths a contained program sees, and which it may write: from its lease, without I/O.

A program never sees more than the lease grants. Mounts can say two kinds of patterns: `/dir/**`,
which is a tree, and a pattern without any `*`, which is one file. Paths of other patterns are left
to requests that the runtime decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Final, TypeAlias

from attrs import frozen

from arcp_trio.authority.lease import Lease
from arcp_trio.authority.patterns import Pattern

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
    readable = _Places(lease.grants.get("fs.read", ()))
    writable = _Places(lease.grants.get("fs.write", ()))
    mounts = [
        Mount(path=path, is_tree=is_tree, writable=writable.have(path, is_tree=is_tree))
        for places in (readable, writable)
        for path, is_tree in places.all()
        if readable.have(path, is_tree=is_tree) and not within(path, reserved)
    ]
    return without_repeats(mounts)[:MOST_LEASED]


class _Places:
    """The trees and the files of patterns; of a tree, all that is in it."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._trees: dict[str, None] = {}
        self._files: dict[str, None] = {}
        for pattern in patterns:
            is_tree = pattern.text.endswith(_TREE) or pattern.text == "**"
            path = pattern.text.removesuffix("**").removesuffix("/") if is_tree else pattern.text
            # A program that decodes percent-encoded characters would read another path.
            if path[:1] in {"/", ""} and "*" not in path and "%" not in path:
                places = self._trees if is_tree else self._files
                places[path or "/"] = None

    def all(self) -> Iterator[tuple[str, bool]]:
        """Yield the paths, each with whether it is a tree."""
        yield from ((path, True) for path in self._trees)
        yield from ((path, False) for path in self._files)

    def have(self, path: str, *, is_tree: bool) -> bool:
        """Return whether a place is among these, or in a tree of theirs."""
        if any(each in self._trees for each in upwards(path)):
            return True
        return not is_tree and path in self._files


def arranged(
    mounts: Iterable[Mount], reserved: Sequence[str], apart: Sequence[str] = ()
) -> list[Layer]:
    """Return mounts and masks in the order in which they are made, parents first.

    Args:
        mounts: what the program sees.
        reserved: paths that it does not see even so.
        apart: folders that are the sandbox's own: what is above them is left as it is.
    """
    kept = without_repeats(mounts)
    trees = [mount.path for mount in kept if mount.is_tree]
    masks = [Mask(path=path) for path in reserved if within(path, trees)]
    hidden = [mask.path for mask in masks]
    # A repeat was left out as a mount above it shows it too; where a mask hides that, it is needed.
    again = [mount for mount in mounts if mount not in kept and within(mount.path, hidden)]
    layers = _parents_first([*masks, *kept, *again])
    return _parents_first([*layers, *_held(layers, apart)])


def _parents_first(layers: Iterable[Layer]) -> list[Layer]:
    return sorted(layers, key=lambda layer: _depth(layer.path))


def _held(layers: Iterable[Layer], apart: Sequence[str]) -> list[Mount]:
    """Return the folders between writable trees and masks, each as a mount of its own.

    A program cannot rename what is mounted. If it renamed a folder above a mask, the next sandbox
    would have the mask at the old name, and would show what is at the new one.
    """
    at: dict[str, Layer | None] = dict.fromkeys(apart)
    at |= {layer.path: layer for layer in layers}
    held: dict[Mount, None] = {}
    for layer in at.values():
        if isinstance(layer, Mask):
            _, *above = upwards(layer.path)
            between = list(takewhile(lambda folder: folder not in at, above))
            top = at.get(above[len(between)]) if len(between) < len(above) else None
            if isinstance(top, Mount) and top.writable:
                held |= {Mount(path=folder, writable=True): None for folder in between}
    return list(held)


def without_repeats(mounts: Iterable[Mount]) -> list[Mount]:
    """Return the mounts without those that are in another's tree, and not writable beyond it."""
    kept: dict[Mount, None] = {}
    trees: dict[str, bool] = {}
    """The trees that are kept, and whether they are writable."""
    for mount in sorted(mounts, key=lambda each: (_depth(each.path), not each.writable)):
        above = [trees[path] for path in upwards(mount.path) if path in trees]
        if not any(each >= mount.writable for each in above):
            kept[mount] = None
            if mount.is_tree:
                trees[mount.path] = mount.writable
    return list(kept)


def is_writable(path: str, mounts: Iterable[Mount]) -> bool:
    """Return whether a program that sees these mounts can write a path."""
    over = [
        each for each in mounts if path == each.path or (each.is_tree and within(path, [each.path]))
    ]
    return max(((_depth(each.path), each.writable) for each in over), default=(0, False))[1]


def within(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of the folders, or below one."""
    return any(path == each or path.startswith(each.rstrip("/") + "/") for each in folders)


def upwards(path: str) -> Iterator[str]:
    """Yield a path and the folders above it, the nearest first."""
    while path != "/":
        yield path
        path = path.rpartition("/")[0] or "/"
    yield path


def _depth(path: str) -> int:
    return 0 if path == "/" else path.count("/")
