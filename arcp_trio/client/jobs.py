"""The jobs of a session: the numbers of their frames, and a stream for each that runs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from arcp_trio.client.asked_questions import AskedQuestion, AskedQuestions
from arcp_trio.client.calls import PendingCalls
from arcp_trio.client.delivery import Delivery
from arcp_trio.client.dialects import STANDARD, RuntimeDialect
from arcp_trio.client.errors import Gap
from arcp_trio.client.events import Event
from arcp_trio.client.job_stream import JobStream
from arcp_trio.client.reading import read_payload
from arcp_trio.client.unread import UnreadEvents
from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.messages import JobErrorBody, JobResult

log = logging.getLogger(__name__)

_MAX_PAST: Final = 10_000
"""How many ended jobs are remembered, and how many subscriptions that were given up."""

_MAX_UNCLAIMED: Final = 1_000
"""How many running jobs are followed that no call has asked for, such as delegated ones."""

_T = TypeVar("_T")


class SessionJobs:
    """The jobs of one session. Each running job has a stream, which its frames are given to."""

    def __init__(
        self,
        calls: PendingCalls,
        delivery: Delivery,
        unread: UnreadEvents,
        tell: Callable[[AskedQuestion], None],
        *,
        dialect: RuntimeDialect,
        max_result_bytes: int,
    ) -> None:
        self.dialect = dialect
        self.top = 0
        """Every numbered frame up to this number was taken: where a resume goes on."""
        self.running: dict[str, JobStream] = {}
        self.left: dict[str, None] = {}
        """Jobs that are no longer observed. Each connection repeats it to the runtime: the
        `job.unsubscribe` may have been lost."""
        self._calls = calls
        self._delivery = delivery
        self._unread = unread
        self._tell = tell
        """Called with each question of a job."""
        self._max_result_bytes = max_result_bytes
        # Some runtimes tell the end of a job once, whatever is submitted or subscribed to later.
        self._ended: WeakValueDictionary[str, JobStream] = WeakValueDictionary()
        self._past: dict[str, bool] = {}
        """Jobs that have ended, and whether they were the session's own."""
        self._answered_at = 0
        self._answers: set[str] = set()
        """The ids of answers since the last number."""
        self._unclaimed: dict[str, JobStream] = {}
        """Running jobs that were accepted and that no call has asked for, the oldest first."""

    # -- numbers (§8.3)

    def is_new(self, seq: int, job_id: str | None) -> bool:
        """Return whether the frame with this number was not taken yet, and count it as taken.

        Raises:
            Gap: frames before it are missing.
        """
        if seq == self.top + 1:
            self.top = seq
            return True
        if seq > self.top:
            raise Gap(f"event_seq {seq} came where {self.top + 1} was due")
        # The frame is a repeat, unless the frames of this job are numbered apart.
        stream = self.running.get(job_id or "")
        return stream is not None and seq > stream.top

    def is_repeated(self, answer_id: str) -> bool:
        """Return whether a frame without a number has come before: a resume repeats some.

        Such a frame comes again only before another number.
        """
        if self._answered_at != self.top:
            self._answered_at = self.top
            self._answers.clear()
        known = answer_id in self._answers
        self._answers.add(answer_id)
        return known

    # -- streams

    def begin(self, job_id: str) -> JobStream:
        """Begin a stream for a job."""
        stream = JobStream(
            job_id,
            self._delivery,
            self._unread,
            AskedQuestions(job_id, self._unread, self._tell),
            top=0 if self.dialect.subscriptions_count_alone else self.top,
            max_result_bytes=self._max_result_bytes,
        )
        self.running[job_id] = stream
        stream.was_own = self._past.pop(job_id, False)
        return stream

    def submitted(self, job_id: str) -> JobStream:
        """Return the stream of a job that was accepted, maybe again under its key (§7.2)."""
        if self.dialect is STANDARD:  # its end, if it has ended, follows
            stream = self.running.get(job_id) or self._ended.get(job_id)
        else:
            stream = self.find(job_id)
        return stream or self.begin(job_id)

    def keep_unclaimed(self, stream: JobStream) -> None:
        """Follow a job that no call has asked for, such as a delegated one; not any number."""
        if stream.log.claimed or stream.id not in self.running:
            return
        self._unclaimed[stream.id] = stream
        if len(self._unclaimed) > _MAX_UNCLAIMED:
            oldest = next(iter(self._unclaimed.values()))
            del self._unclaimed[oldest.id]
            if not oldest.log.claimed:
                log.debug("forgotten: %s, as more jobs are accepted than are followed", oldest.id)
                self.lose(oldest, InvalidRequest("the runtime has told of too many jobs"))

    def find(self, job_id: str) -> JobStream | None:
        """Return the stream of a job that runs, or that has ended: no frame tells its end again."""
        stream = self.running.get(job_id) or self._ended.get(job_id)
        if stream is None and job_id in self._past:
            stream = self.begin(job_id)
            stream.whole = False
            self.end_unknown(stream, f"{job_id} has ended, and its handle no longer exists")
        return stream

    def expect(self, job_id: str) -> None:
        """Prepare for a subscription: some runtimes send its events before they confirm it."""
        self.left.pop(job_id, None)
        if self.dialect is not STANDARD and job_id not in self.running:
            self.begin(job_id)

    def leave(self, job_id: str) -> bool:
        """Stop observing a job; return False if this session does not, or has to go on."""
        stream = self.running.get(job_id)
        if stream is None or stream.own or stream.log.viewed:
            return False
        stream.end_unknown(InvalidRequest("the job is no longer observed"))
        del self.running[job_id]
        _remember(self.left, job_id, None)
        return True

    def lose(self, stream: JobStream, why: Exception) -> None:
        """Give up a job of which nothing more will arrive."""
        if not stream.end.arrived.is_set():
            stream.lose(why)
            self._retire(stream)

    def lose_all(self, why: Exception) -> None:
        """Give up all jobs."""
        for stream in list(self.running.values()):
            self.lose(stream, why)

    def end_unknown(self, stream: JobStream, why: str) -> None:
        """End a job that is over, without its result, which no frame will bring."""
        stream.end_unknown(InvalidRequest(why))
        self._retire(stream)

    def _retire(self, stream: JobStream) -> None:
        """Remove the stream of a job that has ended. Its handle, if any, has the unread events."""
        self.running.pop(stream.id, None)
        self._unclaimed.pop(stream.id, None)
        self._ended[stream.id] = stream
        _remember(self._past, stream.id, stream.own or stream.was_own)
        if not stream.log.claimed:
            stream.log.discard()
        self._calls.job_ended(stream.id)

    def open_questions(self) -> list[AskedQuestion]:
        """Return the questions that are open, job by job."""
        return [each for stream in self.running.values() for each in stream.questions.open.values()]

    # -- frames

    def event(self, event: Event, frame: str | bytes) -> None:
        """Take a `job.event`, which came in this frame (§8.1)."""
        stream = self.running.get(event.job_id)
        told = stream.event(event, frame) if stream is not None else event.job_id not in self.left
        if told:
            self._delivery.event(event, len(frame), self.top)

    def result(self, frame: Envelope, _: str | bytes) -> None:
        """Take a `job.result` (§7.3)."""
        stream = self.running.get(frame.job_id or "")
        if stream is None:
            return
        body = read_payload(frame, JobResult)
        if isinstance(body, JobResult):
            stream.succeed(body)
        else:
            stream.lose(body)
        self._retire(stream)

    def error(self, frame: Envelope, _: str | bytes) -> None:
        """Take a `job.error` (§7.3)."""
        stream = self.running.get(frame.job_id or "")
        if stream is None:
            log.debug("ignored: the end of an unknown job")
            return
        body = read_payload(frame, JobErrorBody)
        if isinstance(body, JobErrorBody):
            stream.fail(body)
        else:
            stream.lose(body)
        self._retire(stream)


def _remember(jobs: dict[str, _T], job_id: str, what: _T) -> None:
    jobs[job_id] = what
    if len(jobs) > _MAX_PAST:
        del jobs[next(iter(jobs))]
