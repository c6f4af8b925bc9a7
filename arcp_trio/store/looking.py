"""Searches that can take long: they go on in pieces, so that other readers have their turn."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from typing import Final, TypeAlias, TypeVar

import attrs

from arcp_trio.store.first_numbers import index_after
from arcp_trio.store.interface import Reads, Replay
from arcp_trio.store.packing import numbered_in
from arcp_trio.store.records import NumberedTail
from arcp_trio.store.replaying import ReplayPlace
from arcp_trio.store.snapshot import LogRow, Snapshot

_T = TypeVar("_T")
_S = TypeVar("_S")

PAGE: Final = 1_024
"""Rows of a log that one piece looks at."""


@attrs.define(eq=False)
class Coverage:
    """Finds out whether a log is complete after a number."""

    session_id: str
    after: int
    complete: bool = True
    """The result, once `look` has returned False."""
    _looked_at: tuple[int, int] = attrs.field(init=False)
    """Last place and number of the last batch that was looked at."""
    _reached: dict[str, int] = attrs.field(factory=dict[str, int])
    """The least index that was looked for, by job."""

    def __attrs_post_init__(self) -> None:
        self._looked_at = (2 * self.after + 1, -1)

    def look(self, snapshot: Snapshot) -> bool:
        """Look at the next piece; return False once the result is known."""
        log = snapshot.log(self.session_id)
        if log is None or self.after < log[1]:
            self.complete = False
            return False
        batches = snapshot.batches(log[0], self._looked_at, PAGE)
        self.complete = snapshot.reach_back(self._reaching_further(batches))
        if len(batches) < PAGE:
            return False
        self._looked_at = batches[-1][:2]
        return self.complete

    def _reaching_further(self, batches: Sequence[LogRow]) -> Mapping[str, int]:
        """Return the least indexes that these batches need, where they are new."""
        further: dict[str, int] = {}
        for _, _, packed in batches:
            for job_id, (first_seq, first_index, count) in numbered_in(packed):
                if first_seq + count - 1 <= self.after:
                    continue
                index = first_index + max(0, self.after + 1 - first_seq)
                least = self._reached.get(job_id)
                if least is None or index < least:
                    self._reached[job_id] = further[job_id] = index
        return further


@attrs.define(eq=False)
class NumberSearch:
    """Finds the entry of a job with the last number up to `seq`, of the session that submitted it.

    The log is searched from that number downwards, and after it the numbers that were moved from
    the deleted part of the log.
    """

    job_id: str
    seq: int
    found: int | None = 0
    """The index after that entry; None if there is no such job."""
    base: int = 0
    """Index of the oldest entry that was not given up."""
    _below: tuple[int, int] | None = None
    """Last place and number of the batch after the next one to look at."""

    def look(self, snapshot: Snapshot) -> bool:
        """Look at the next piece; return False once the result is known."""
        job = snapshot.numbering(self.job_id)
        if job is None:
            self.found = None
            return False
        self.base = job.base
        if self._below is None:
            # Batches after the job's last number may be many, and are not looked at.
            self.seq = min(self.seq, job.last_seq)
            self._below = snapshot.place_after(job.sid, self.seq)
        batches = snapshot.batches_below(job.sid, self._below, PAGE)
        for last_place, number, packed in batches:
            self._below = last_place, number
            runs = [run for job_id, run in numbered_in(packed) if job_id == self.job_id]
            self.found = index_after(runs, self.seq)
            if self.found:
                return False
        if len(batches) == PAGE:
            return True
        self.found = index_after(snapshot.moved_numbers(job.jid, self.seq), self.seq)
        return False


class SnapshotReads(Reads):
    """The reads that go on in pieces, each of which sees one state of the store."""

    @abstractmethod
    async def _see(self, act: Callable[[Snapshot], _T]) -> _T:
        """Call `act` with one state of the store, which may be another one at the next call.

        If that fails, `act` may be called again.
        """

    async def index_after(self, job_id: str, seq: int) -> int | None:
        search, more = NumberSearch(job_id, seq), True
        while more:
            search, more = await self._see(_on_a_copy(search, NumberSearch.look))
        return None if search.found is None else max(search.found, search.base)

    async def covers(self, session_id: str, after: int) -> bool:
        coverage, more = Coverage(session_id, after), True
        while more:
            coverage, more = await self._see(_on_a_copy(coverage, Coverage.look))
        return coverage.complete

    def replay(self, session_id: str, after: int, top: int, log_rows: int) -> Replay:
        return _PiecewiseReplay(self._see, ReplayPlace(session_id, after, top, log_rows))


def _on_a_copy(
    search: _S, look: Callable[[_S, Snapshot], _T]
) -> Callable[[Snapshot], tuple[_S, _T]]:
    """Return what has a copy of a search look, and returns it with what it has found.

    An engine may call it again after it has failed half-way: the search itself has not moved then.
    """

    def look_with_copy(snapshot: Snapshot) -> tuple[_S, _T]:
        copied = deepcopy(search)
        return copied, look(copied, snapshot)

    return look_with_copy


_Piece: TypeAlias = tuple[ReplayPlace, Sequence[NumberedTail]]


class _PiecewiseReplay:
    def __init__(
        self,
        see: Callable[[Callable[[Snapshot], _Piece]], Awaitable[_Piece]],
        place: ReplayPlace,
    ) -> None:
        self._see = see
        self._place = place

    async def next(self, frames: int, size: int) -> Sequence[NumberedTail]:
        if self._place.over:
            return ()
        read = _on_a_copy(self._place, lambda place, snapshot: place.read(snapshot, frames, size))
        self._place, found = await self._see(read)
        return found
