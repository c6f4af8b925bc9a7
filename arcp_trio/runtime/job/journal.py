"""A job's journal from its writing end: what is emitted, who watches, and its bound."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.credentials import holes as sealing
from arcp_trio.store.records import Entry
from arcp_trio.store.writes import AppendJournal, FinishJob, TrimJournal
from arcp_trio.wire import envelope
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.job.outcome import Outcome
    from arcp_trio.runtime.session.watch import Watch
    from arcp_trio.store.queue import Group

SEGMENT_ENTRIES = 64
"""Trimming gives up whole segments of so many entries: sizes need not be kept one by one."""


class Journal:
    """Takes a job's entries, hints at them, and gives up the oldest past its bound."""

    def __init__(
        self, jobs: Jobs, job_id: str, trace_id: str, session_id: str, above: Journal | None
    ) -> None:
        self.length = 0
        self.watches: dict[str, Watch] = {}
        """Those of the awake sessions that watch the job, by their ids."""
        core = jobs.core
        self._jobs = jobs
        self._store = core.store
        self._metrics = core.metrics
        self._job_id = job_id
        self._session_id = session_id
        self._above = above
        """The parent's, for a delegated job."""
        self._tails = envelope.JobTails(job_id, trace_id)
        self._most_bytes = min(core.limits.journal_bytes, core.store.journal_bytes)
        self._bytes = 0
        self._segments: deque[tuple[int, int]] = deque([(0, 0)])
        """Where each segment starts, by index and by bytes ever written."""
        self._given_up = 0
        self._waiting = False
        self._moved = trio.Event()

    # -- writing: each in one step, so that concurrent emitters cannot change places

    def append(
        self, message_type: str, payload: bytes, *, feature: str | None = None, sealed: bool = False
    ) -> None:
        """Add an event; a sealed one has a hole for a secret."""
        tail = self._tails.tail(message_type, payload, id=new_id())
        self._append(self._entry(sealing.sealed(tail) if sealed else tail, feature=feature))
        self._metrics.events += 1
        self._metrics.event_bytes += len(tail)

    def accept_child(self, job_id: str, accepted: bytes) -> None:
        """Add the acceptance of a job that this one has delegated to (§10)."""
        self._append(self._entry(accepted, child=job_id))

    def finish(self, outcome: Outcome, now: float, budget: bytes | None) -> Group:
        """Add the terminal: nothing comes behind it."""
        tail = self._tails.tail(outcome.type, outcome.payload(rfc3339(now)), id=new_id())
        entry = self._entry(tail, terminal=True)
        group = self._store.put(FinishJob(self._job_id, outcome.status, now, entry, budget))
        self._hint(entry)
        return group

    def _append(self, entry: Entry) -> None:
        self._store.put(AppendJournal(self._job_id, entry))
        self._hint(entry)

    def _entry(
        self,
        tail: bytes,
        *,
        feature: str | None = None,
        terminal: bool = False,
        child: str | None = None,
    ) -> Entry:
        ordinal = self._jobs.next_ordinal()
        entry = Entry(self.length, ordinal, tail, feature, terminal, child)
        self._count(entry)
        return entry

    def _hint(self, entry: Entry) -> None:
        for watch in self.watches.values():
            watch.session.outbox.hint(watch, entry)

    def _count(self, entry: Entry) -> None:
        self.length = entry.index + 1
        self._bytes += len(entry.tail)
        if self.length % SEGMENT_ENTRIES == 0:
            self._segments.append((self.length, self._bytes))

    # -- its bound

    @property
    def first(self) -> int:
        """The oldest entry it still has."""
        return self._segments[0][0]

    @property
    def over(self) -> bool:
        """Whether it holds more than it may."""
        return self._bytes - self._given_up > self._most_bytes

    @property
    def _over_by_a_segment(self) -> bool:
        """Whether something whole could be given up to make it fit."""
        return self.over and len(self._segments) > 1

    def _trim(self, reader: int | None) -> None:
        """Give up the oldest segments until it fits, but nothing that `reader` has yet to read."""
        base, first = 0, self.first
        while self._over_by_a_segment:
            index, size = self._segments[1]
            if reader is not None and index > reader:
                break
            self._segments.popleft()
            base, self._given_up = index, size
        if base:
            self._store.put(TrimJournal(self._job_id, base))
            self._metrics.evicted_events += base - first

    def reader_moved(self) -> None:
        """A watch moved on, or its session left: whoever waits for that looks again."""
        if self._waiting:
            self._waiting = False
            self._moved.set()

    async def _reader(self) -> None:
        """Wait until a watch has moved."""
        if not self._waiting:
            self._waiting, self._moved = True, trio.Event()
        await self._moved.wait()

    async def fit(self) -> None:
        """Wait for the session that submitted the job, while it is attached; for nobody else."""
        while True:
            journal, watch = self._first_reader()
            attached = watch is not None and watch.session.outbox.unsent is not None
            # Told of an ancestor only, so far, it has yet to read all of this one.
            cursor = watch.cursor if watch is not None and journal is self else 0
            self._trim(cursor if attached else None)
            if not (attached and self._over_by_a_segment):
                return
            await journal._reader()  # noqa: SLF001 - another of the same kind

    def _first_reader(self) -> tuple[Journal, Watch | None]:
        """The submitting session's watch: of this job, or else of the nearest one above."""
        journal = self
        while (watch := journal.watches.get(self._session_id)) is None:
            if journal._above is None:
                break
            journal = journal._above
        return journal, watch
