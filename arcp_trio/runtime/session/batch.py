"""What a scribe numbers in one go: frames to send, and the log row that must be stored before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from arcp_trio.runtime.session.outbox import AfterNumber, Promise
from arcp_trio.runtime.session.secrets import with_secrets
from arcp_trio.runtime.session.session import Session
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.records import Entry, Inline, LogItem, Mark, Range
from arcp_trio.store.writes import AppendLog

if TYPE_CHECKING:
    from arcp_trio.runtime.job.job import Job


class Batch:
    """Filled and turned into a write with no checkpoint between: numbers and order are one."""

    def __init__(self, session: Session, live: Mapping[str, Job]) -> None:
        self.series: list[tuple[int, list[bytes]]] = []
        """The frames to send, in order."""
        self.size = 0
        self.after_seq = session.top
        """The highest number before its own."""
        self._session = session
        self._live = live
        self._items: list[LogItem] = []
        self._moved: dict[str, Watch] = {}
        self._watched: list[str] = []
        self._observed: list[str] = []
        self._ended: list[str] = []
        self._run: list[int] | None = None
        """The range being built: first number, first index, count; its job is `_run_job`."""
        self._run_job = ""

    @property
    def logged(self) -> bool:
        """Whether there is anything that must be stored."""
        return bool(self._moved or self._watched or self._items or self._ended)

    def number(self, watch: Watch, entry: Entry) -> None:
        """The entry the watch is owed goes out under the session's next number."""
        if entry.child is None and (
            entry.feature is None or entry.feature in self._session.features
        ):
            self.number_events(watch, [self._with_secrets(entry.tail)])
        else:
            # A feature that was not negotiated is not used (§6.2): the entry is passed over,
            # without a number.
            watch.cursor += 1
            self._moved[watch.job_id] = watch
            if entry.child is not None and not watch.observer:
                self._accept_child(entry.child, entry.tail)
        if entry.terminal:
            self._ended.append(watch.job_id)
            watch.end()

    def number_events(self, watch: Watch, tails: Sequence[bytes]) -> None:
        """The next entries the watch is owed go out, all of them, under the next numbers."""
        session, count = self._session, len(tails)
        first_seq, first_index = session.top + 1, watch.cursor
        session.top += count
        watch.cursor += count
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
        """Whoever submitted the parent watches the child from its first event on (§10)."""
        if job_id in self._session.watches:
            self.promise(Promise(accepted))  # as an observer, or it was away and is owed all of it
            return
        job = self._live.get(job_id)
        watch = Watch(self._session, job_id, job)
        self.promise(Promise(accepted, watch))
        if job is not None:
            job.journal.watches[self._session.id] = watch

    def inline(self, tail: bytes) -> None:
        """A frame of this session only goes out under the next number."""
        self._end_run()
        seq = self._session.top = self._session.top + 1
        self._send(seq, [tail])
        self._items.append(Inline(seq, tail))

    def answer(self, tail: bytes | AfterNumber) -> bytes:
        """A frame without a number takes its place."""
        said = tail if isinstance(tail, bytes) else tail(self._session.top)
        self._send(0, [self._with_secrets(said)])
        return said

    def _with_secrets(self, tail: bytes) -> bytes:
        # Now rather than when it is sent: by then the job may have ended, and with it its secrets.
        return with_secrets(tail, self._session, self._live)

    def promise(self, item: Promise) -> None:
        """A promise takes its place in the log, whether or not somebody is there to read it."""
        session = self._session
        self._end_run()
        self._items.append(Mark(session.top, session.log_rows, self.answer(item.tail)))
        watch = item.watch
        if watch is not None and watch.job_id not in session.watches:
            self._watched.append(watch.job_id)
            if watch.observer:
                self._observed.append(watch.job_id)
            self._moved[watch.job_id] = watch
            session.watches[watch.job_id] = watch
            session.behind = session.behind or watch.behind

    def unwatch(self, watch: Watch) -> None:
        """A subscription is over, unless the job was before."""
        if self._session.watches.get(watch.job_id) is watch:
            self._ended.append(watch.job_id)
            watch.end()

    def write(self) -> AppendLog:
        """The log row; taking it ends the batch."""
        self._end_run()
        session = self._session
        row = session.log_rows
        session.log_rows += 1
        for watch in self._moved.values():
            if watch.job is not None:
                watch.job.journal.reader_moved()
        return AppendLog(
            session_id=session.id,
            row=row,
            items=self._items,
            top=session.top,
            cursors={job_id: watch.cursor for job_id, watch in self._moved.items()},
            watched=self._watched,
            ended=self._ended,
            observed=self._observed,
        )

    def job_that_goes_on(self) -> Job | None:
        """A job whose terminal has no number in this session yet; one of this batch, if any."""
        watches = self._session.watches
        here = [watches[job_id] for job_id in reversed(self._moved) if job_id in watches]
        return next((watch.job for watch in (*here, *watches.values()) if watch.job), None)

    def _send(self, first_seq: int, tails: Sequence[bytes]) -> None:
        if self.series and bool(self.series[-1][0]) == bool(first_seq):
            self.series[-1][1].extend(tails)  # no number is left out in between
        else:
            self.series.append((first_seq, list(tails)))

    def _end_run(self) -> None:
        if self._run is not None:
            first_seq, first_index, count = self._run
            self._items.append(Range(first_seq, self._run_job, first_index, count))
            self._run = None
