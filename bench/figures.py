"""What is measured, and how two sides of it are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import attrs

from bench.peers import COMMANDS, OURS, PEER, Server, running

QUICK_SHARE: Final = 0.02
"""A smoke run does this part of the work."""


@attrs.frozen
class Figure:
    """One number of one run."""

    row: str
    unit: str
    value: float
    client_busy: float
    """The share of the time for which the client used a processor: near 1 it was the limit."""
    less_is_better: bool = False


@attrs.frozen
class Comparison:
    """One row: the best run of either side."""

    ours: Figure
    peer: Figure

    @property
    def ratio(self) -> float:
        """How many times better ours is, whichever direction is better."""
        ratio = self.ours.value / self.peer.value
        return 1 / ratio if self.ours.less_is_better else ratio


Family: TypeAlias = Callable[[Server, float], Sequence[Figure]]
"""Measures a fresh server, doing this share of the full work. Always the same rows in a row."""


def compare(family: Family, *, runs: int, share: float) -> Iterator[Comparison]:
    """Measure both sides by turns, so that a machine that slows down does so for both."""
    found: dict[str, list[Sequence[Figure]]] = {side: [] for side in COMMANDS}
    for _ in range(runs):
        for side, figures in found.items():
            with running(side) as server:
                figures.append(family(server, share))
    best = {side: [_best(row) for row in zip(*found[side], strict=True)] for side in found}
    for ours, peer in zip(best[OURS], best[PEER], strict=True):
        yield Comparison(ours, peer)


def _best(figures: Sequence[Figure]) -> Figure:
    choose = min if figures[0].less_is_better else max
    return choose(figures, key=lambda figure: figure.value)


class Stopwatch:
    """The time a block took, and this process's part in it."""

    seconds: float
    busy: float


@contextmanager
def stopwatch() -> Iterator[Stopwatch]:
    """Time a block."""
    watch = Stopwatch()
    wall, processor = time.perf_counter(), time.process_time()
    yield watch
    watch.seconds = time.perf_counter() - wall
    watch.busy = (time.process_time() - processor) / watch.seconds
