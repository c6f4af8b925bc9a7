"""What a lease mounts: nothing that it does not grant, and nothing writable that it only shows."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.authority.authority import Authority
from arcp_trio.authority.budget import Budget
from arcp_trio.authority.lease import Lease
from arcp_trio.sandbox.plan import Mask, Mount, arranged, leased, within
from arcp_trio.wire.errors import PermissionDenied

RESERVED = ["/proc", "/a/data"]
NAMES = st.sampled_from(["a", "b", "ab", "data", "b-evil"])
SEGMENTS = st.one_of(NAMES, st.sampled_from(["*", "**", "*.py", "b*"]))
PATTERNS = st.lists(SEGMENTS, min_size=1, max_size=4).map(lambda each: "/" + "/".join(each))
PATHS = st.lists(NAMES, max_size=5).map(lambda each: "/" + "/".join(each))
LEASES = st.fixed_dictionaries(
    {
        capability: st.lists(PATTERNS, max_size=4)
        for capability in ("fs.read", "fs.write", "x-vendor.arcp-trio.ask.fs.write")
    }
)


def allows(lease: Lease, capability: str, path: str) -> bool:
    """Return whether the one check of operations allows one."""
    authority = Authority(lease=lease, budget=Budget(None), reserved=RESERVED)
    try:
        authority.check(capability, path, now=-math.inf)
    except PermissionDenied:
        return False
    return True


def seen(lease: Lease, path: str) -> Mount | None:
    """Return the mount through which a path is seen; None if it is hidden."""
    found: Mount | None = None
    for step in arranged(leased(lease, RESERVED), RESERVED):
        if isinstance(step, Mask):
            found = None if within(path, [step.path]) else found
        elif path == step.path or (step.is_tree and within(path, [step.path])):
            found = step
    return found


@given(LEASES, PATHS)
def test_what_is_mounted_is_granted(request: dict[str, list[str]], path: str) -> None:
    """A path that is mounted may be read, and one that is mounted writable may be written, too."""
    lease = Lease.read(request)
    mount = seen(lease, path)
    if mount is not None:
        assert allows(lease, "fs.read", path)
        if mount.writable:
            assert allows(lease, "fs.write", path)


@given(LEASES, PATHS)
def test_trees_that_are_granted_are_mounted(request: dict[str, list[str]], path: str) -> None:
    """What is in a tree that may be read is mounted, and writable if the same tree may be written.

    Paths that are reserved are not.
    """
    lease = Lease.read(request)
    trees = {
        name: [each.removesuffix("/**") or "/" for each in request[name] if each.endswith("/**")]
        for name in ("fs.read", "fs.write")
    }
    plain = {name: [each for each in trees[name] if "*" not in each] for name in trees}
    if within(path, plain["fs.read"]) and not within(path, RESERVED):
        mount = seen(lease, path)
        assert mount is not None
        if within(path, plain["fs.write"]):
            assert mount.writable


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({"fs.read": ["/w/**"]}, [Mount(path="/w")]),
        ({"fs.read": ["/w/f"]}, [Mount(path="/w/f", is_tree=False)]),
        ({"fs.read": ["/w/*", "/w/*.py", "**/x", "/w/**/x", "/a%2Fb/**"]}, []),
        ({"fs.write": ["/w/**"]}, []),
        ({"fs.read": ["/**"]}, [Mount(path="/")]),
        (
            {"fs.read": ["/w/**"], "fs.write": ["/w/out/**", "/other/**"]},
            [Mount(path="/w"), Mount(path="/w/out", writable=True)],
        ),
        (
            {"fs.read": ["/w/**", "/w/a/**"], "fs.write": ["/**"]},
            [Mount(path="/w", writable=True)],
        ),
        ({"fs.read": ["/proc/**", "/proc/1/environ", "/a/data/f"]}, []),
        ({"x-vendor.arcp-trio.ask.fs.write": ["/w/**"], "fs.read": ["/w/**"]}, [Mount(path="/w")]),
    ],
)
def test_leases(request_: dict[str, list[str]], expected: list[Mount]) -> None:
    """Trees and single files are mounted; other patterns are left to requests."""
    assert leased(Lease.read(request_), RESERVED) == expected


def test_order() -> None:
    """Parents come first, then what hides a part of them, and then what is seen in there again."""
    home = Mount(path="/srv/data/home", writable=True)
    steps = arranged([home, Mount(path="/srv", writable=True)], ["/srv/data", "/elsewhere"])
    assert steps == [Mount(path="/srv", writable=True), Mask(path="/srv/data"), home]


def test_folders_above_a_mask() -> None:
    """Those below a writable tree are mounts, which nobody renames; others are left as they are."""
    tree = Mount(path="/srv", writable=True)
    (data, file) = (Mask(path="/srv/a/b/data"), Mask(path="/srv/a/b/data/x/file"))
    held = [Mount(path=path, writable=True) for path in ("/srv/a", "/srv/a/b")]
    assert arranged([tree], [data.path, file.path]) == [tree, *held, data, file]
    assert arranged([Mount(path="/srv")], [data.path]) == [Mount(path="/srv"), data]
    assert arranged([tree], [data.path], ["/srv/a"]) == [tree, data]
