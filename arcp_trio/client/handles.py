"""What a program holds of a job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from decimal import Decimal
from weakref import finalize

import trio

from arcp_trio.client.events import Event
from arcp_trio.client.room import Room
from arcp_trio.client.stream import EventIterator, JobStream
from arcp_trio.wire.json import Json
from arcp_trio.wire.messages import Accepted, Subscribed
from arcp_trio.wire.schema import to_json


class _Handle:
    """What a submitter's and an observer's handle have in common."""

    def __init__(self, stream: JobStream, room: Room, body: Accepted | Subscribed) -> None:
        self.id = stream.id
        self.agent = body.agent or ""
        """As the runtime resolved it: `name@version` (§7.5)."""
        self.lease: Mapping[str, Json] = body.lease or {}
        """What it was granted (§9)."""
        self.lease_constraints: Mapping[str, Json] = body.lease_constraints or {}
        self.budget: Mapping[str, Decimal] = stream.budget
        """What there is to spend, by currency: at first, or when the observation began (§9.6)."""
        self.trace_id = body.trace_id
        self._stream = stream
        self._room = room
        # What nobody can ask for any more is not kept.
        finalize(self, stream.unwanted).atexit = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    @property
    def credentials(self) -> list[dict[str, Json]]:
        """What the job was given to use, with the newest values; nothing after its end (§9.8)."""
        return list(self._stream.credentials.values())

    @property
    def terminal(self) -> dict[str, Json] | None:
        """The payload of the message that ended the job, with its type; None before that (§7.3)."""
        outcome = self._stream.end.value
        if outcome is None or outcome.message is None:
            return None
        return {"type": outcome.message.type, **to_json(outcome.message)}

    def events(self) -> AsyncIterator[Event]:
        """Iterate over the job's events, in order, up to its end.

        Each event comes once: who begins late gets all of them, who stops and begins again goes on
        where it stopped. Chunks of a streamed result are among them, and `result` is not affected
        by who takes them.

        Raises:
            EventsNotKept: while iterating, where nobody had asked for too many events for too long.
            ConnectionFailed, ResumeWindowExpired: while iterating, where the session was lost
                before the job ended.
        """
        return EventIterator(self._stream, self)

    async def result(self) -> Json:
        """Wait for the job's end and return what its agent returned.

        A streamed result comes assembled: text, or bytes if any chunk was binary.

        Raises:
            JobFailed, JobCancelled, JobTimedOut: it ended otherwise.
            BrokenResult: the chunks of its result do not fit together.
            ConnectionFailed, ResumeWindowExpired: the session was lost before the job ended.
        """
        with self._room.waiting():
            outcome = await self._stream.end.wait()
        return outcome.get()


class JobHandle(_Handle):
    """A job, as its submitter has it. `Client.submit` makes one."""

    def __init__(
        self,
        stream: JobStream,
        room: Room,
        body: Accepted,
        *,
        idempotency_key: str,
        cancel: Callable[[JobStream, str], Awaitable[None]],
    ) -> None:
        super().__init__(stream, room, body)
        self.idempotency_key = idempotency_key
        """Submitting the same under it leads to this job, also from another session (§7.2)."""
        self._cancel = cancel

    async def cancel(self, reason: str = "no longer needed") -> None:
        """Ask for the job's end; returns when the runtime has agreed to it.

        Raises:
            ArcpError: the class of the refusal's code; `InvalidRequest` if it has ended already.
        """
        await self._cancel(self._stream, reason)


class ObservedJob(_Handle):
    """Somebody else's job, or one's own from another session. `Client.subscribe` makes one."""

    def __init__(
        self,
        stream: JobStream,
        room: Room,
        body: Subscribed,
        *,
        unsubscribe: Callable[[], None],
    ) -> None:
        super().__init__(stream, room, body)
        self.status = body.current_status
        """When the observation began."""
        self._unsubscribe = unsubscribe

    async def unsubscribe(self) -> None:
        """Stop observing: `events` ends. Doing so again does nothing."""
        self._unsubscribe()
        await trio.lowlevel.checkpoint()
