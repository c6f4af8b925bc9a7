"""One job as its session receives it: events not read yet, chunks of its result, its end."""

from __future__ import annotations

from collections import deque
from decimal import Decimal
from typing import Final
from weakref import WeakSet

import attrs
import trio

from arcp_trio.client.assembly import Assembly
from arcp_trio.client.delivery import Answer
from arcp_trio.client.errors import BrokenResult, EventsNotKept, afresh
from arcp_trio.client.events import Event
from arcp_trio.client.lenient import object_in, text_in
from arcp_trio.client.room import Room
from arcp_trio.client.turns import Turns
from arcp_trio.wire.errors import ArcpError, JobCancelled, JobFailed, JobTimedOut
from arcp_trio.wire.json import Json, JsonObject
from arcp_trio.wire.messages import JobErrorBody, JobResult

_FAILURES: Final = {"cancelled": JobCancelled, "timed_out": JobTimedOut}
_CODES: Final = {"cancelled": "CANCELLED", "timed_out": "TIMEOUT"}

BEARER: Final = "bearer"


@attrs.frozen(kw_only=True)
class Outcome:
    """How a job ended."""

    status: str
    value: Json = None
    error: ArcpError | None = None
    broken: Exception | None = None
    """Why there is no value, though the job succeeded."""
    message: JobResult | JobErrorBody | None = None
    """What said so."""

    def get(self) -> Json:
        """Return the result, or raise what there is instead of one."""
        if self.error is not None:
            raise afresh(self.error)
        if self.broken is not None:
            raise afresh(self.broken)
        return self.value


class JobStream:
    """Fed by the session; handles and their iterators take from it."""

    def __init__(self, job_id: str, room: Room, *, top: int, most_result_bytes: int) -> None:
        self.id = job_id
        self.top = top
        """The number that came last."""
        self.end: Answer[Outcome] = Answer()
        self.request: bytes | None = None
        """What it was submitted with."""
        self.about: JsonObject = {}
        """What its handle knows that helps to find it again."""
        self.credentials: dict[str, JsonObject] = {}
        self.budget: dict[str, Decimal] = {}
        """What there was to spend when it was accepted, or subscribed to last."""
        self.size = 0
        self.events: deque[tuple[Event, int]] = deque()
        self.wanted = True
        self.own = False
        """Submitted in this session, and so not for it to unsubscribe."""
        self.claimed = False
        """Somebody has, had or gets a handle."""
        self.iterators: WeakSet[EventIterator] = WeakSet()
        self.gone: Exception | None = None
        """Why there are events that cannot be had from here any more."""
        self._room = room
        self._assembly = Assembly(most_result_bytes)
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def status(self) -> str | None:
        """How it ended; None before that."""
        return self.end.value.status if self.end.value is not None else None

    def known(self) -> JsonObject:
        """What is known of the job, for somebody who loses sight of it."""
        return {"job_id": self.id, "last_event_seq": self.top, **self.about}

    # -- what comes

    def event(self, event: Event, size: int) -> None:
        """Keep an event until it is asked for."""
        self.top = event.seq
        if event.kind == "result_chunk":
            self._assembly.add(event.body)
        elif event.kind == "status":
            self._rotate(object_in(event.body))
        if self.wanted and self.gone is None:
            self.events.append((event, size))
            self.size += size
            self._room.add(size)
            self._room.backlogs.add(self)
            if self._changed:
                self._changed.unpark_all()

    def result(self, body: JobResult) -> None:
        """The job has ended, most often in success."""
        failure = _FAILURES.get(body.final_status)
        if failure is not None:
            # Some runtimes say so with a job.result.
            code = _CODES[body.final_status]
            self.error(JobErrorBody(code=code, final_status=body.final_status, message=code))
            return
        self._settle(self._success(body))

    def ended_before(self, why: Exception) -> None:
        """It had ended already, and nothing tells how."""
        self._settle(Outcome(status="", broken=why))

    def lose(self, why: Exception) -> None:
        """Nothing more will come of it."""
        if not self.end.arrived.is_set():
            self.end.fail(why)
            self._changed.unpark_all()

    def authorise(self, credentials: list[JsonObject] | None) -> None:
        """Take the credentials of the job's lease; those of unknown schemes are not for us."""
        for credential in credentials or ():
            credential_id = credential.get("id")
            if credential.get("scheme") == BEARER and isinstance(credential_id, str):
                self.credentials[credential_id] = credential

    def _success(self, body: JobResult) -> Outcome:
        try:
            return Outcome(status=body.final_status, value=self._value(body), message=body)
        except BrokenResult as broken:
            return Outcome(status=body.final_status, broken=broken, message=body)

    def _value(self, body: JobResult) -> Json:
        if body.result_id is not None:
            return self._assembly.result(body.result_id, body.result_size)
        if self._assembly.begun:
            raise BrokenResult("chunks came, and the result does not refer to them")
        return body.value

    def error(self, body: JobErrorBody) -> None:
        """The job has ended in something else."""
        failure = _FAILURES.get(body.final_status, JobFailed)
        error = failure(
            body.message or body.code,
            details=body.details,
            retryable=body.retryable,
            code=body.code,
        )
        error.job_id = self.id
        self._settle(Outcome(status=body.final_status, error=error, message=body))

    def _settle(self, outcome: Outcome) -> None:
        self.end.succeed(outcome)
        self.credentials.clear()  # §9.8.2: no value is kept beyond its job
        self._changed.unpark_all()

    def _rotate(self, body: JsonObject) -> None:
        """Take the new value of a credential (§9.8.2)."""
        if body.get("phase") != "credential_rotated":
            return
        id_, value = str(body.get("id")), text_in(body.get("value"))
        known = self.credentials.get(id_)
        if known is not None and value is not None:
            self.credentials[id_] = {**known, "value": value}

    def miss(self, why: Exception) -> None:
        """There are events that did not come, and will not; its end may."""
        if self.gone is None:
            self.gone = why
        self._changed.unpark_all()

    # -- what is taken

    @property
    def iterated(self) -> bool:
        """Whether somebody is iterating over its events."""
        return len(self.iterators) > 0

    def let_go(self) -> None:
        """Forget the events that nobody reads, and those to come."""
        if not self.events:
            return
        self.gone = EventsNotKept(
            f"the events of {self.id} were not read in time; iterate over them from the start, or "
            "use on_event"
        )
        self._room.take(self.size, len(self.events))
        self._room.backlogs.discard(self)
        self.events.clear()
        self.size = 0

    def unwanted(self) -> None:
        """Nobody has a handle any more."""
        self.wanted = False

    def take(self) -> Event:
        """Take the next event out."""
        event, size = self.events.popleft()
        self.size -= size
        if not self.events:
            self._room.backlogs.discard(self)
        self._room.take(size)
        return event

    async def more(self) -> None:
        """Wait until there is another event, or an end."""
        with self._room.waiting():
            await self._changed.park()


class EventIterator:
    """Takes a job's events out as they come, up to its end.

    It keeps the handle: what nobody has a handle of is not kept.
    """

    # No async generator: Trio wants one that is left by `break` to be closed.

    def __init__(self, stream: JobStream, handle: object) -> None:
        self._stream = stream
        self._handle = handle
        self._turns = Turns()
        stream.iterators.add(self)

    def __aiter__(self) -> EventIterator:
        return self

    async def __anext__(self) -> Event:
        stream = self._stream
        await self._turns.take()
        while not stream.events:
            if stream.gone is not None:
                raise afresh(stream.gone)
            if stream.end.arrived.is_set():
                stream.end.get()
                raise StopAsyncIteration
            await stream.more()
        return stream.take()
