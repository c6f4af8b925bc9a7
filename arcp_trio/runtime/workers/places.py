"""Places: how many jobs are in workers at once, and who may use the place of a job that waits.

A job has a place until its agent has ended. While it waits for a child, a job at or below that
child may use its place, too, and so on down the tree: no tree can block itself or others. While it
waits for people, which may take days, any job may use it. A place is free when the last job has
left it, whichever that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import attrs
import trio

from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job

MOST_IN_PLACE: Final = 16
"""The jobs in one place past which those that wait for people lend it no further.

Each of them keeps its process, and so its memory.
"""


@attrs.define(eq=False)
class _OnePlace:
    """Leave to have one job at work in a worker."""

    stays: list[Stay] = attrs.field(factory=list["Stay"])
    """The stays of the jobs that are in this place. Only the last one may lend the place.

    Each job is below the one before it, in one tree of jobs, or the one before it waited for people
    when it came.
    """
    processes: int = 1
    """How many workers it needs: the most jobs that were in it since it was free."""


@attrs.define(eq=False)
class Stay:
    """A job's stay with the workers: it waits for a place, and then it has one."""

    places: WorkerPlaces
    job: Job
    place: _OnePlace | None = None
    given: trio.Event = attrs.field(factory=trio.Event)
    awaited: list[str] = attrs.field(factory=list[str])
    """Ids of the children for whose results it waits, as often as it does."""

    @contextmanager
    def awaits(self, child_id: str) -> Generator[None]:
        """Lend the job's place to one job at or below a child while the block waits for it."""
        self.awaited.append(child_id)
        try:
            self.places.lend_place_of(self.job)
            yield
        finally:
            self.awaited.remove(child_id)

    def jobs_awaited(self) -> Iterator[Job]:
        """Return the children that it waits for, and all jobs below them."""
        for child in self.job.children:
            if child.id in self.awaited:
                yield from _tree(child)


class WorkerPlaces:
    """The places of a runtime, and the jobs that wait for one."""

    def __init__(self, count: int) -> None:
        self._all = [_OnePlace() for _ in range(count)]
        self._waiting: dict[str, Stay] = {}
        """The stays of jobs without a place, by the jobs' ids."""
        self.changed = Wake()

    @property
    def processes(self) -> int:
        """How many workers there should be: enough for each job that has a place."""
        return sum(place.processes for place in self._all)

    @contextmanager
    def stay(self, job: Job) -> Generator[Stay]:
        """Have a job wait for a place; at the end of the block it leaves it, or waits no longer."""
        stay = self._waiting[job.id] = Stay(self, job)
        self._give_free_places()
        above = {each.id for each in _above(job)}
        for place in self._all:
            if place.stays:
                last = place.stays[-1].job
                if last.id in above or last.questions.are_open:
                    self._lend(place)
        try:
            yield stay
        finally:
            if stay.place is None:
                del self._waiting[job.id]
            else:
                self._leave(stay.place, stay)

    def lend_place_of(self, job: Job) -> None:
        """Lend a job's place, if the job is the last in it and another one can use it."""
        for place in self._all:
            if place.stays and place.stays[-1].job is job:
                self._lend(place)

    def _lend(self, place: _OnePlace) -> None:
        last = place.stays[-1]
        for job in last.jobs_awaited():
            if job.id in self._waiting:
                self._give(place, self._waiting[job.id])
                return
        if self._waiting and last.job.questions.are_open and len(place.stays) < MOST_IN_PLACE:
            self._give(place, self._next())

    def _leave(self, place: _OnePlace, stay: Stay) -> None:
        place.stays.remove(stay)
        if place.stays:
            self._lend(place)
        else:
            place.processes = 1
            self.changed.set()
            self._give_free_places()

    def _give_free_places(self) -> None:
        for place in self._all:
            if self._waiting and not place.stays:
                self._give(place, self._next())

    def _next(self) -> Stay:
        """Return the first that waits, of the principal that has the fewest places."""
        has = Counter(place.stays[0].job.principal for place in self._all if place.stays)
        return min(self._waiting.values(), key=lambda each: has[each.job.principal])

    def _give(self, place: _OnePlace, stay: Stay) -> None:
        del self._waiting[stay.job.id]
        place.stays.append(stay)
        place.processes = max(place.processes, len(place.stays))
        stay.place = place
        stay.given.set()
        self.changed.set()


def _above(job: Job) -> Iterator[Job]:
    while job.parent is not None:
        job = job.parent
        yield job


def _tree(job: Job) -> Iterator[Job]:
    yield job
    for child in job.children:
        yield from _tree(child)
