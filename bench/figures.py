"""Figures, and the comparison of the sides."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import attrs

from bench.peers import SIDES, Server, running


@attrs.frozen
class Extent:
    """How much is measured."""

    runs: int
    """Runs of each side."""
    share: float = 1.0
    """The share of the full work that a run does."""
    crowd: int = 1_000
    """The most clients at once."""
    growth: int = 1_000_000
    """The most things that are piled up to see what grows with them."""
    complete: bool = False
    """Whether families that take long are measured, and all loads of the others."""

    def of(self, count: float) -> int:
        """Return how many of the full number of repetitions a run does."""
        return max(1, int(count * self.share))

    def crowds(self, *sizes: int) -> Sequence[int]:
        """Return those of these numbers of clients that are measured."""
        return [size for size in sizes if size <= self.crowd]


QUICK: Final = Extent(runs=1, share=0.02, crowd=50, growth=1_000, complete=True)
USUAL: Final = Extent(runs=3, share=0.1, growth=10_000)
FULL: Final = Extent(runs=5, complete=True)


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
    """What was measured of each side that has this row."""

    name: str
    unit: str
    less_is_better: bool
    values: Mapping[str, Sequence[float]]
    """Of each run, by side."""
    client_busy: float | None
    """The highest of all runs."""

    def median(self, side: str) -> float | None:
        """Return the median of a side's runs, if it has any."""
        return statistics.median(self.values[side]) if side in self.values else None

    def ratio(self, side: str, other: str) -> float | None:
        """Return how many times better a side is than another, in the direction that is better."""
        one, two = self.median(side), self.median(other)
        if not one or not two:
            return None
        return two / one if self.less_is_better else one / two


@attrs.frozen
class Family:
    """Rows that are measured together."""

    measure: Callable[[Server, Extent], Sequence[Figure]]
    """Measures a fresh server."""
    most_runs: int = 5
    """The most runs of each side, for families that take long."""
    sides: Sequence[str] = SIDES
    usual: bool = True
    """Whether it is measured without being named."""


def compare(family: Family, extent: Extent) -> Sequence[Row]:
    """Measure the sides by turns, so that a machine that slows down affects all of them."""
    found: dict[str, dict[str, list[Figure]]] = {}
    for _ in range(min(extent.runs, family.most_runs)):
        for side in family.sides:
            with running(side) as server:
                for figure in family.measure(server, extent):
                    of_row = found.setdefault(figure.row, {})
                    of_row.setdefault(figure.side or side, []).append(figure)
    return [_row(sides) for sides in found.values()]


def _row(sides: Mapping[str, Sequence[Figure]]) -> Row:
    figures = [figure for of_side in sides.values() for figure in of_side]
    busy = [figure.client_busy for figure in figures if figure.client_busy is not None]
    return Row(
        figures[0].row,
        figures[0].unit,
        figures[0].less_is_better,
        {side: [figure.value for figure in of_side] for side, of_side in sides.items()},
        max(busy, default=None),
    )


class Stopwatch:
    """What a block took: time, and processor time of the server and of this process."""

    def __init__(self, server: Server | None) -> None:
        self._server = server
        self._began = self._now()
        self.seconds = self.busy = self.server_seconds = 0.0

    def stop(self) -> None:
        """Take the time."""
        wall, here, server = (b - a for a, b in zip(self._began, self._now(), strict=True))
        self.seconds, self.busy, self.server_seconds = wall, here / wall, server

    def _now(self) -> tuple[float, float, float]:
        server = 0.0 if self._server is None else self._server.processor_seconds()
        return time.perf_counter(), time.process_time(), server

    def rate(self, row: str, unit: str, count: float) -> Figure:
        """Return how many of something there were in a second."""
        return Figure(row, unit, count / self.seconds, client_busy=self.busy)

    def cost(self, row: str, count: float, *, per: int = 1) -> Figure:
        """Return the server's processor time, in milliseconds, of one of something."""
        milliseconds = 1000 * self.server_seconds * per / count
        return Figure(row, "ms", milliseconds, less_is_better=True, client_busy=self.busy)


@contextmanager
def stopwatch(server: Server | None = None) -> Generator[Stopwatch]:
    """Time a block."""
    watch = Stopwatch(server)
    yield watch
    watch.stop()


def percentiles(
    row: str, seconds: Sequence[float], client_busy: float | None = None
) -> Sequence[Figure]:
    """Return the median of waits, and what one in a hundred is longer than."""
    ordered = sorted(seconds)
    waits = {
        percent: 1000 * ordered[math.ceil(percent / 100 * len(ordered)) - 1] for percent in (50, 99)
    }
    return [
        Figure(f"{row}: p{percent}", "ms", wait, less_is_better=True, client_busy=client_busy)
        for percent, wait in waits.items()
    ]
