"""A job's journal, as its job writes it: entries, hints to the watchers, and the bound on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.credentials.holes import with_holes
from arcp_trio.store.errors import StoreError
from arcp_trio.store.records import Entry
from arcp_trio.store.writes import AppendJournal, FinishJob, TrimJournal
from arcp_trio.wire import envelope
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.job.outcome import Outcome
    from arcp_trio.runtime.job.written import Watcher
    from arcp_trio.store.memos import JournalExtent
    from arcp_trio.store.queue import Group
    from arcp_trio.store.shared import Follows

ASK_SECONDS: Final = 0.25
"""Pause between two looks at how far a session has come that another node has."""

SEGMENT_ENTRIES: Final = 64
"""Entries per segment. Trimming drops whole segments, so that no entry's size need be kept."""


class Journal:
    """Takes a job's entries, hints at them to the watchers, and drops the oldest past its bound."""

    elsewhere = False

    def __init__(
        self, jobs: Jobs, job_id: str, trace_id: str, session_id: str, above: Journal | None
    ) -> None:
        self.length = 0
        self.trace_id = trace_id
        self._watches: dict[str, Watcher] = {}
        """The watches of the awake sessions that watch the job, by session id."""
        core = jobs.core
        self._jobs = jobs
        self._store = core.store
        self._metrics = core.metrics
        self._job_id = job_id
        self._session_id = session_id
        self.job_ids: Sequence[str] = (job_id, *(() if above is None else above.job_ids))
        """The job, and those above it, one after the other."""
        self._above = above
        """The parent's journal, if the job is a delegated one."""
        self._tails = envelope.JobTails(job_id, trace_id)
        self._most_bytes = min(core.limits.journal_bytes, core.store.journal_bytes)
        self._bytes = 0
        """How many bytes of tails were ever added."""
        self._segments: deque[tuple[int, int]] = deque([(0, 0)])
        """The start of each segment: the index of its first entry, and `_bytes` before it."""
        self._trimmed_bytes = 0
        self._reader_awaited = False
        self._reader_moved = trio.Event()

    def go_on_from(self, length: int, extent: JournalExtent) -> None:
        """Continue a journal that an earlier runtime has begun."""
        self.length, self._bytes = length, extent.size
        # The sizes of its segments are not known: they are taken to be equal.
        count = max(1, length - extent.first)
        starts = range(extent.first - extent.first % -SEGMENT_ENTRIES, length + 1, SEGMENT_ENTRIES)
        self._segments = deque([(extent.first, 0)])
        self._segments += [
            (index, extent.size * (index - extent.first) // count)
            for index in starts
            if index > extent.first
        ]

    # -- writing: each entry in one step, so that concurrent emitters cannot change places

    def append(
        self,
        message_type: str,
        payload: bytes,
        *,
        feature: str | None = None,
        holes: bool = False,
        once: bool = False,
    ) -> None:
        """Add an event; with `holes`, secrets are filled in as it is sent."""
        tail = self._tails.tail(message_type, payload, id=new_id())
        self._append(self._entry(with_holes(tail) if holes else tail, feature=feature, once=once))
        self._metrics.events += 1
        self._metrics.event_bytes += len(tail)

    def accept_child(self, job_id: str, accepted: bytes) -> None:
        """Add the acceptance of a job that this journal's job has delegated to (§10)."""
        self._append(self._entry(accepted, child=job_id))

    def finish(
        self,
        outcome: Outcome,
        now: float,
        *,
        budget: bytes | None,
        spent: bytes,
        last_event: str | None,
        durable: bool,
    ) -> Group:
        """Add the terminal, which is the last entry."""
        tail = self._tails.tail(outcome.type, outcome.payload(rfc3339(now)), id=new_id())
        entry = self._entry(tail, terminal=True)
        group = self._store.put(
            FinishJob(
                self._job_id,
                outcome.status,
                now,
                entry,
                budget=budget,
                error=outcome.error_brief,
                spent=spent,
                last_event=last_event,
                durable=durable,
            )
        )
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
        once: bool = False,
    ) -> Entry:
        ordinal = self._jobs.next_ordinal()
        entry = Entry(self.length, ordinal, tail, feature, terminal, child, once)
        self._count(entry)
        return entry

    def _hint(self, entry: Entry) -> None:
        for watch in self._watches.values():
            watch.hint(entry)

    def _count(self, entry: Entry) -> None:
        self.length = entry.index + 1
        self._bytes += len(entry.tail)
        if self.length % SEGMENT_ENTRIES == 0:
            self._segments.append((self.length, self._bytes))

    @property
    def written(self) -> int:
        """How many bytes of events were ever added."""
        return self._bytes

    # -- the sessions that watch

    def has(self, session_id: str) -> bool:
        """Whether a session has joined the journal."""
        return session_id in self._watches

    def join(self, watch: Watcher) -> None:
        """Send hints to a session from now on."""
        self._watches[watch.session_id] = watch

    def leave(self, watch: Watcher) -> None:
        """Neither send hints to a session nor wait for it any longer."""
        if self._watches.get(watch.session_id) is watch:
            del self._watches[watch.session_id]
            self.reader_moved()

    def reader_moved(self) -> None:
        """Notice that a watch moved on or left: `fit` looks again."""
        if self._reader_awaited:
            self._reader_awaited = False
            self._reader_moved.set()

    # -- the bound

    @property
    def first(self) -> int:
        """The index of the oldest entry that is still there."""
        return self._segments[0][0]

    @property
    def over(self) -> bool:
        """Whether the journal holds more than its bound allows."""
        return self._bytes - self._trimmed_bytes > self._most_bytes

    @property
    def _over_by_a_segment(self) -> bool:
        """Whether the journal is over its bound and has a whole segment to drop."""
        return self.over and len(self._segments) > 1

    async def fit(self) -> None:
        """Bring the journal within its bound.

        Entries that the submitting session has not read are kept while it is attached: wait for it
        to read them. No other session is waited for.
        """
        while self._over_by_a_segment:
            journal, watch = self._nearest_watch_of_submitter()
            if watch is None and self._store.shared is not None:
                if await self._fits_reader_elsewhere(self._store.shared):
                    return
                await trio.sleep(ASK_SECONDS)
                continue
            attached = watch is not None and watch.attached
            # A session that watches only an ancestor so far has yet to read all of this journal.
            cursor = watch.cursor if watch is not None and journal is self else 0
            self._trim(cursor if attached else None)
            if not attached:
                return
            if self._over_by_a_segment:
                await journal._wait_for_reader()  # noqa: SLF001 - another journal

    async def _fits_reader_elsewhere(self, follows: Follows) -> bool:
        """Drop what the submitting session has read at its node; return whether the rest fits."""
        try:
            cursor = await follows.cursor_elsewhere(self.job_ids, self._session_id)
        except StoreError:
            return False  # the queue is full then, and everything waits
        self._trim(cursor)
        return not self._over_by_a_segment

    def _trim(self, reader: int | None) -> None:
        """Drop the oldest segments until the rest fits, but no entry from index `reader` on."""
        base, first = 0, self.first
        while self._over_by_a_segment:
            index, size = self._segments[1]
            if reader is not None and index > reader:
                break
            self._segments.popleft()
            base, self._trimmed_bytes = index, size
        if base:
            self._store.put(TrimJournal(self._job_id, base))
            self._metrics.evicted_events += base - first

    def _nearest_watch_of_submitter(self) -> tuple[Journal, Watcher | None]:
        """Return the submitting session's watch: of this job, or of the nearest one above it."""
        journal = self
        while (watch := journal._watches.get(self._session_id)) is None:
            if journal._above is None:
                break
            journal = journal._above
        return journal, watch

    async def followed(self) -> None:
        """Wait while sessions are attached, but each of them has yet to be given entries."""
        while True:
            attached = [watch for watch in self._watches.values() if watch.attached]
            if not attached or any(watch.cursor >= self.length for watch in attached):
                return
            await self._wait_for_reader()

    async def _wait_for_reader(self) -> None:
        """Wait until a watch moves on or leaves."""
        if not self._reader_awaited:
            self._reader_awaited, self._reader_moved = True, trio.Event()
        await self._reader_moved.wait()
