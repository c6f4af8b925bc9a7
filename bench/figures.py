"""Figures, and the comparison of the sides."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import attrs

from bench.peers import SIDES, Server, running

QUICK_SHARE: Final = 0.02
"""The share of the work that a quick run does."""


@attrs.frozen
class Figure:
    """One number of one run."""

    row: str
    unit: str
    value: float
    less_is_better: bool = False
    side: str | None = None
    """The side that the number belongs to, if it is not the server's."""
    client_busy: float | None = None
    """The share of the time in which the client used a processor; near 1, it was the limit."""


@attrs.frozen
class Row:
    """The best figure of each side that has this row."""

    name: str
    runs: int
    figures: Mapping[str, Figure]

    @property
    def unit(self) -> str:
        """The unit of its figures."""
        return next(iter(self.figures.values())).unit

    def ratio(self, side: str, other: str) -> float | None:
        """Return how many times better a side is than another, in the direction that is better."""
        if not {side, other} <= self.figures.keys():
            return None
        one = self.figures[side]
        ratio = one.value / self.figures[other].value
        return 1 / ratio if one.less_is_better else ratio


@attrs.frozen
class Family:
    """Rows that are measured together."""

    measure: Callable[[Server, float], Sequence[Figure]]
    """Measures a fresh server, with a share of the full work."""
    most_runs: int = 5
    """The most runs of each side, for families that take long."""
    sides: Sequence[str] = SIDES


def compare(family: Family, *, runs: int, share: float) -> Sequence[Row]:
    """Measure the sides by turns, so that a machine that slows down affects all of them."""
    found: dict[str, dict[str, list[Figure]]] = {}
    runs = min(runs, family.most_runs)
    for _ in range(runs):
        for side in family.sides:
            with running(side) as server:
                for figure in family.measure(server, share):
                    of_row = found.setdefault(figure.row, {})
                    of_row.setdefault(figure.side or side, []).append(figure)
    return [
        Row(name, runs, {side: _best(figures) for side, figures in sides.items()})
        for name, sides in found.items()
    ]


def _best(figures: Sequence[Figure]) -> Figure:
    choose = min if figures[0].less_is_better else max
    return choose(figures, key=lambda figure: figure.value)


class Stopwatch:
    """The time that a block took, and the share in which this process used a processor."""

    seconds: float
    busy: float


@contextmanager
def stopwatch() -> Generator[Stopwatch]:
    """Time a block."""
    watch = Stopwatch()
    wall, processor = time.perf_counter(), time.process_time()
    yield watch
    watch.seconds = time.perf_counter() - wall
    watch.busy = (time.process_time() - processor) / watch.seconds
