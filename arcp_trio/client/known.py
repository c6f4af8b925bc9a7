"""The jobs of a session, as far as its client remembers them."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

from arcp_trio.client.room import Room
from arcp_trio.client.stream import JobStream

_MOST_PAST: Final = 10_000
"""How many jobs are remembered to have ended, and how many subscriptions to be given up."""


class KnownJobs:
    """Those that run have a stream each; of the others, what is still asked is kept."""

    def __init__(self, room: Room, most_result: int) -> None:
        self.running: dict[str, JobStream] = {}
        self.left: dict[str, None] = {}
        """Subscriptions that were given up; said again on each connection, for it may get lost."""
        self._room = room
        self._most_result = most_result
        # A submit under the key of a job that has ended is accepted, and then nothing follows.
        self._ended: WeakValueDictionary[str, JobStream] = WeakValueDictionary()
        self._past: dict[str, None] = {}

    def begin(self, job_id: str, *, top: int) -> JobStream:
        """Begin a stream, behind this number."""
        stream = JobStream(job_id, self._room, top=top, most_result_bytes=self._most_result)
        self.running[job_id] = stream
        self._past.pop(job_id, None)
        return stream

    def get(self, job_id: str) -> JobStream | None:
        """Find the stream of a job that runs, or has ended and has a handle still."""
        return self.running.get(job_id) or self._ended.get(job_id)

    def has_ended(self, job_id: str) -> bool:
        """Whether that is known of a job."""
        return job_id in self._past

    def retire(self, stream: JobStream) -> None:
        """It has ended; what of it is unread is its handle's business."""
        self.running.pop(stream.id, None)
        self._ended[stream.id] = stream
        _remember(self._past, stream.id)

    def leave(self, stream: JobStream) -> None:
        """Nobody observes it any more."""
        del self.running[stream.id]
        _remember(self.left, stream.id)


def _remember(jobs: dict[str, None], job_id: str) -> None:
    jobs[job_id] = None
    if len(jobs) > _MOST_PAST:
        del jobs[next(iter(jobs))]
