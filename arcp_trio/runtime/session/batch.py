"""What a scribe numbers in one step: frames to send, and the log row to store before that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from arcp_trio.runtime.session.outbox import AfterNumber, Promise
from arcp_trio.runtime.session.session import Session
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.records import HOLES, Entry, Inline, LogItem, Mark, Range
from arcp_trio.store.writes import AppendLog

if TYPE_CHECKING:
    from arcp_trio.runtime.job.jobs import Jobs

BATCH_FRAMES: Final = 1_024
BATCH_BYTES: Final = 1024 * 1024
"""A batch takes what is there, up to these bounds; it never waits for more."""


class Batch:
    """Frames and their log row, filled and written without a checkpoint: order is number order."""

    def __init__(self, session: Session, jobs: Jobs) -> None:
        self.series: list[tuple[int, list[bytes]]] = []
        """The frames to send, in order."""
        self.size = 0
        self.after_seq = session.record.top
        """The highest number before the batch."""
        self._session = session
        self._record = session.record
        self._jobs = jobs
        self._items: list[LogItem] = []
        self._moved: dict[str, Watch] = {}
        self._watched: list[str] = []
        self._observed: list[str] = []
        self._ended: list[str] = []
        self._run: list[int] | None = None
        """The range being built, of `_run_job`: first number, first index, count."""
        self._run_job = ""

    @property
    def logged(self) -> bool:
        """Whether there is anything to store."""
        return bool(self._moved or self._watched or self._items or self._ended)

    def number_all(self, watch: Watch, entries: Sequence[Entry]) -> None:
        """Number consecutive entries of a job; in one step, if all of them are ordinary events."""
        outbox = self._session.outbox
        tails = [entry.tail for entry in entries if _goes_to_anyone(entry)]
        if (
            len(tails) == len(entries)
            and entries[0].index == watch.cursor
            and entries[-1].index == watch.cursor + len(entries) - 1
            and outbox.unsent is not None
            and self.size + sum(map(len, tails)) <= 2 * BATCH_BYTES
        ):
            self.number_events(watch, tails)
            return
        behind = outbox.behind
        for entry in entries:
            self._number_if_owed(watch, entry)
            if outbox.behind and not behind:
                return  # what has to be read now, a child's events say, may belong before the rest

    def _number_if_owed(self, watch: Watch, entry: Entry) -> None:
        """Number an entry, if the watch is owed it next and a client is there to read it."""
        outbox = self._session.outbox
        if entry.index != watch.cursor or outbox.unsent is None or self.size > 2 * BATCH_BYTES:
            if entry.index >= watch.cursor:
                outbox.fall_behind()
            return
        self.number(watch, entry)

    def number(self, watch: Watch, entry: Entry) -> None:
        """Number the entry that the watch is owed next."""
        if entry.child is None and (
            entry.feature is None or entry.feature in self._record.features
        ):
            self.number_events(watch, [self._with_secrets(entry.tail)])
        else:
            # A feature that was not negotiated is not used (§6.2): the entry gets no number.
            watch.cursor += 1
            self._moved[watch.job_id] = watch
            is_new = entry.index >= watch.first_time
            if entry.child is not None and is_new and not watch.observer:
                self._accept_child(entry.child, entry.tail)
        if entry.terminal:
            self._ended.append(watch.job_id)
            watch.end()

    def number_events(self, watch: Watch, tails: Sequence[bytes]) -> None:
        """Number the next entries that the watch is owed."""
        count, first_index = len(tails), watch.cursor
        first_seq = self._record.take_numbers(count)
        watch.cursor += count
        watch.given = watch.cursor
        self._moved[watch.job_id] = watch
        self._send(first_seq, tails)
        self.size += sum(map(len, tails))
        run = self._run
        if run is not None and self._run_job == watch.job_id and run[1] + run[2] == first_index:
            run[2] += count
        else:
            self._end_run()
            self._run, self._run_job = [first_seq, first_index, count], watch.job_id

    def _accept_child(self, job_id: str, accepted: bytes) -> None:
        """Have the session that submitted the parent watch the child from its start (§10)."""
        if job_id in self._session.watches:
            self.promise(Promise(accepted))  # it observes the child, or was away when it began
            return
        watch = Watch(self._session, job_id, self._jobs.journal(job_id))
        self.promise(Promise(accepted, watch))
        watch.join_journal()

    def inline(self, tail: bytes) -> None:
        """Number a frame that is in no journal: it is for this session only."""
        self._end_run()
        seq = self._record.take_numbers(1)
        self._send(seq, [tail])
        self._items.append(Inline(seq, tail))

    def answer(self, tail: bytes | AfterNumber) -> bytes:
        """Give a frame without a number its place; return its tail."""
        said = tail if isinstance(tail, bytes) else tail.make(self._record.top)
        self._send(0, [self._with_secrets(said)])
        return said

    def _with_secrets(self, tail: bytes) -> bytes:
        # Not when it is sent: by then the job may have ended, and its secrets with it.
        return self._session.with_secrets(tail, self._jobs)

    def promise(self, item: Promise) -> None:
        """Give a promise its place in the log, whether or not a client is there to read it."""
        session, record = self._session, self._record
        self._end_run()
        self._items.append(Mark(record.top, record.log_rows, self.answer(item.tail)))
        watch = item.watch
        if watch is None:
            return
        known = session.watches.get(watch.job_id)
        if known is None:
            self._watched.append(watch.job_id)
            if watch.observer:
                self._observed.append(watch.job_id)
            self._moved[watch.job_id] = watch
            session.watches[watch.job_id] = watch
            if watch.may_be_behind and not watch.hinted:
                session.outbox.fall_behind()
        elif watch.observer:
            if session.subscriptions.get(watch.job_id) is watch:
                del session.subscriptions[watch.job_id]
            if watch.cursor < known.given:
                known.go_back(watch.cursor)
                self._moved[known.job_id] = known

    def unwatch(self, watch: Watch) -> None:
        """End a subscription, unless its job's end has done so."""
        if self._session.watches.get(watch.job_id) is watch:
            self._ended.append(watch.job_id)
            watch.end()

    def write(self) -> AppendLog:
        """Return the log row; nothing can be added after this."""
        self._end_run()
        record = self._record
        for watch in self._moved.values():
            if watch.journal is not None:
                watch.journal.reader_moved()
        record.log_size.add(self._items)
        return AppendLog(
            session_id=record.id,
            row=record.take_log_row(),
            items=self._items,
            top=record.top,
            cursors={job_id: watch.cursor for job_id, watch in self._moved.items()},
            watched=self._watched,
            ended=self._ended,
            observed=self._observed,
            log_bytes=record.log_size.held,
        )

    def job_that_goes_on(self) -> tuple[str, str] | None:
        """Return a job whose terminal has no number here yet, and its trace.

        It is one of this batch, if possible.
        """
        watches = self._session.watches
        here = [watches[job_id] for job_id in reversed(self._moved) if job_id in watches]
        for watch in (*here, *watches.values()):
            trace_id = None if watch.journal is None else watch.journal.trace_id
            if trace_id is not None:
                return watch.job_id, trace_id
        return None

    def _send(self, first_seq: int, tails: Sequence[bytes]) -> None:
        if self.series and bool(self.series[-1][0]) == bool(first_seq):
            self.series[-1][1].extend(tails)  # consecutive: no number lies between
        else:
            self.series.append((first_seq, list(tails)))

    def _end_run(self) -> None:
        if self._run is not None:
            first_seq, first_index, count = self._run
            self._items.append(Range(first_seq, self._run_job, first_index, count))
            self._run = None


def _goes_to_anyone(entry: Entry) -> bool:
    """Return whether any session gets the entry as it is, and the job goes on after it."""
    return (
        entry.feature is None
        and entry.child is None
        and not entry.terminal
        and entry.tail[0] != HOLES
    )
