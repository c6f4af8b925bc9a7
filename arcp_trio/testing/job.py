"""One job, as the small client has it."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import trio

from arcp_trio.testing.inbox import Answer, Event, Inbox
from arcp_trio.wire.errors import JobCancelled, JobFailed, JobTimedOut
from arcp_trio.wire.json import Json

_FAILURES: Final = {"cancelled": JobCancelled, "timed_out": JobTimedOut}


class JobStream:
    """What has arrived of one job. Iterating takes its events out, up to its end."""

    def __init__(self, job_id: str, inbox: Inbox) -> None:
        self.job_id = job_id
        self.end = Answer()
        self._inbox = inbox
        self._events: deque[Event] = deque()
        self._changed = trio.lowlevel.ParkingLot()

    def put(self, event: Event) -> None:
        """Keep an event until it is asked for."""
        self._events.append(event)
        self._changed.unpark_all()

    def finish(self) -> None:
        """Let go of those who wait for the end."""
        self.end.in_turn.set()
        self._changed.unpark_all()

    async def result(self) -> Json:
        """Wait for the end and return what the agent returned."""
        frame = await self._inbox.wait(self.end)
        payload = frame["payload"]
        if frame["type"] == "job.result":
            return payload.get("result")
        failure = _FAILURES.get(payload["final_status"], JobFailed)
        raise failure(
            payload["message"],
            details=payload.get("details"),
            retryable=payload["retryable"],
            code=payload["code"],
        )

    # No async generator: Trio wants one that is left by `break` to be closed.

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        await trio.lowlevel.checkpoint()
        while not self._events:
            if self.end.in_turn.is_set():
                self.end.get()
                raise StopAsyncIteration
            with self._inbox.unbounded():
                await self._changed.park()
        self._inbox.event_read()
        return self._events.popleft()


class JobHandle:
    """A job, as its submitter has it."""

    def __init__(self, stream: JobStream, cancel: Callable[[str, str], Awaitable[None]]) -> None:
        self.id = stream.job_id
        self._stream = stream
        self._cancel = cancel

    def events(self) -> AsyncIterator[Event]:
        """Iterate over the job's events, in order, each once, until its end.

        With `on_event` there are none here: they went there.

        Raises:
            TransportClosed: while iterating, where the connection ended before the job did.
        """
        return aiter(self._stream)

    async def result(self) -> Json:
        """Wait for the job's end and return what its agent returned.

        Raises:
            JobFailed, JobCancelled, JobTimedOut: it ended otherwise.
            TransportClosed: the connection ended before the job did.
        """
        return await self._stream.result()

    async def cancel(self, reason: str = "no longer needed") -> None:
        """Ask for the job's end; returns when the runtime has agreed to it.

        Raises:
            ArcpError: the class of the refusal's code.
        """
        await self._cancel(self.id, reason)
