"""The cost of checking an operation against a lease, and a lease against another (§9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from arcp_trio.authority.lease import Lease
from arcp_trio.authority.patterns import Pattern
from arcp_trio.authority.subset import uncovered
from arcp_trio.authority.targets import forms
from bench.figures import Extent, Figure, stopwatch
from bench.peers import Server

PATTERNS: Final = 100

# Each is a pattern of a lease, and a target that only the last of the patterns allows.
_GRANTS: Final = (
    ("paths", "fs.read", "/ws/project{}/**", "/ws/project99/src/main.py"),
    ("deep paths", "fs.read", "/ws/**/package{}/*.py", "/ws/src/package99/main.py"),
    ("URLs", "net.fetch", "https://api{}.example.com/**", "https://api99.example.com/users/7"),
    ("names", "tool.call", "search{}.*", "search99.web"),
)


def leases(_server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure checks and proofs in microseconds, in this process and without a server."""
    return [*_checks(extent.of(20_000)), *_proofs(extent.of(200))]


def _checks(times: int) -> Iterator[Figure]:
    for kind, capability, pattern, target in _GRANTS:
        request = {capability: [pattern.format(number) for number in range(PATTERNS)]}
        lease = Lease.read(request, None, now=0)

        def check(lease: Lease = lease, capability: str = capability, target: str = target) -> None:
            assert lease.allows(capability, forms(capability, target))

        yield _figure(f"check against {PATTERNS} {kind}", check, times)


def _proofs(times: int) -> Iterator[Figure]:
    for kind, child, parent in (
        ("paths", "/ws/project{}/src/*.py", "/ws/project{}/**"),
        ("deep paths", "**/project{}/**/*.py", "**/project{}/**"),
    ):
        row = f"subset, {PATTERNS} of {PATTERNS} {kind}"
        yield _figure(row, _proof(child, parent, PATTERNS), times)
    for stars in (5, 10, 20, 40):
        child, parent = "**/*a/" * stars + "b", "**/*a/" * stars + "*b"
        yield _figure(f"subset, {stars} times ** in each", _proof(child, parent, 1), times)


def _proof(child: str, parent: str, count: int) -> Callable[[], None]:
    children = [Pattern.parse(child.format(number)) for number in range(count)]
    parents = [Pattern.parse(parent.format(number)) for number in range(count)]

    def prove() -> None:
        assert uncovered(children, parents) is None

    return prove


def _figure(row: str, work: Callable[[], None], times: int) -> Figure:
    with stopwatch() as watch:
        for _ in range(times):
            work()
    return Figure(row, "µs", watch.seconds / times * 1e6, less_is_better=True)
