"""`connect`: a session with a runtime, as if the network never failed."""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

import trio

from arcp_trio.client.assembly import MOST_RESULT_BYTES
from arcp_trio.client.calls import CANCEL, LIST, SUBMIT, SUBSCRIBE, Call
from arcp_trio.client.delivery import Delivery
from arcp_trio.client.dialing import Target, dialer
from arcp_trio.client.events import EventHandler
from arcp_trio.client.handles import JobHandle, ObservedJob
from arcp_trio.client.life import Life
from arcp_trio.client.listing import JobListing
from arcp_trio.client.presence import ConnectionStates
from arcp_trio.client.requests import Budget, Lease, listing_payload, submit_payload
from arcp_trio.client.room import Room
from arcp_trio.client.stream import JobStream
from arcp_trio.client.supervisor import Supervisor
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.features import ALL_FEATURES, Feature
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json, JsonLike, JsonObject, dumps
from arcp_trio.wire.messages import Accepted, AgentInfo, Jobs, Subscribed


@asynccontextmanager
async def connect(
    target: Target,
    *,
    token: str | None = None,
    on_event: EventHandler | None = None,
    features: Iterable[str] = ALL_FEATURES,
    ssl_context: ssl.SSLContext | None = None,
    reconnect_seconds: float | None = None,
    max_result_bytes: int = MOST_RESULT_BYTES,
    now: Callable[[], float] = time.time,
) -> AsyncGenerator[Client, None]:
    """Open a session with a runtime, for as long as the block lasts.

    When the connection is lost, the client gets another one and resumes the session: calls under
    way go on, and events have no gap and no repeat. Leaving the block closes the session; its jobs
    go on.

    Args:
        target: a `ws://` or `wss://` URL; `unix:` and the path of a socket; the command of a
            runtime that speaks on its standard input and output; an open stream; or an async
            function that opens one, as often as one is needed. The client closes what it is given,
            and what it opens.
        token: who this is (§6.1).
        on_event: called with each event of each job, one at a time, in order. It may itself make
            calls of the client; what it raises ends the block.
        features: what to offer (§6.2).
        ssl_context: for `wss://`, instead of the system's default.
        reconnect_seconds: how long to try to get a lost connection back, 0 not to; by default as
            long as the session can be resumed.
        max_result_bytes: what a streamed result may have; one with more fails.
        now: the time of day, in seconds since 1970.

    Raises:
        ConnectionFailed: there is no connection: a subclass says why. Also while the block runs, if
            it ends for good and no call was waiting that could say so.
        ArcpError: the runtime refused the session, with the class of its code.
        ResumeWindowExpired: the connection was lost for longer than the session can be resumed.
    """
    room = Room(handled=on_event is not None)
    delivery = Delivery(on_event, room)
    supervisor = Supervisor(
        dialer(target, ssl_context),
        token=token,
        features=features,
        delivery=delivery,
        room=room,
        most_result_bytes=max_result_bytes,
        reconnect_seconds=reconnect_seconds,
        now=now,
    )
    life = Life(supervisor, delivery, room)
    async with life.lived():
        yield Client(life, now)


class Client:
    """A session with a runtime; `connect` makes one."""

    def __init__(self, life: Life, now: Callable[[], float]) -> None:
        self._life = life
        self._now = now

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self._life.session.id

    @property
    def features(self) -> frozenset[str]:
        """The features in effect: what both sides have (§6.2)."""
        return self._life.session.greeting.features

    @property
    def agents(self) -> tuple[AgentInfo, ...]:
        """The agents of the runtime, with their versions where it tells them."""
        return self._life.session.greeting.agents

    @property
    def connected(self) -> bool:
        """Whether there is a connection just now; while there is none, calls wait for one."""
        return self._life.link is not None

    def connection_states(self) -> AsyncIterator[bool]:
        """Iterate over whether there is a connection: now, and then each time that it changes.

        Every loss that the client tries to make good comes as False, and every return as True, also
        to who is slow to take them. It ends with the session.
        """
        return ConnectionStates(self._life.presence)

    async def close(self) -> None:
        """Close the session, as leaving the block does; again, it does nothing.

        Events that have come are handled first. From then on calls raise `ConnectionLost`.
        """
        await self._life.leave()

    async def wait_closed(self) -> None:
        """Wait until the session has ended for this client; return or raise why.

        Raises:
            ConnectionFailed, ResumeWindowExpired: it was lost.
        """
        await self._life.over()

    async def submit(
        self,
        agent: str,
        input: Json = None,  # noqa: A002 - the name it has on the wire
        *,
        lease: Lease | None = None,
        budget: Budget | None = None,
        expires_in: float | None = None,
        idempotency_key: str | None = None,
        max_runtime: int | None = None,
        trace_id: str | None = None,
    ) -> JobHandle:
        """Submit a job (§7.1).

        A submission that is caught in a lost connection is repeated under its idempotency key, and
        so starts one job.

        Args:
            agent: `name` or `name@version`.
            input: any JSON.
            lease: what the job may do: patterns by capability.
            budget: what it may spend, by currency.
            expires_in: the seconds after which it may do nothing any more.
            idempotency_key: by default a fresh one.
            max_runtime: the seconds after which it ends, `timed_out`.
            trace_id: 32 hexadecimal digits; by default fresh ones (§11).

        Cancellation: the job may have been submitted.

        Raises:
            ValueError, TypeError: the input is not JSON, or an argument makes no sense.
            ArcpError: the class of the refusal's code.
            ConnectionFailed, ResumeWindowExpired: the session was lost; whether the job was
                submitted is not known.
        """
        if expires_in is not None and expires_in <= 0:
            raise ValueError("expires_in must be in the future")
        key = new_id("key_") if idempotency_key is None else idempotency_key
        payload = submit_payload(
            agent,
            input,
            lease=lease,
            budget=budget,
            expires_at=None if expires_in is None else self._now() + expires_in,
            idempotency_key=key,
            max_runtime=max_runtime,
        )
        trace_id = trace_id or secrets.token_hex(16)
        answer = await self._life.call(Call(SUBMIT, dumps(payload), trace_id=trace_id))
        stream, accepted = cast("tuple[JobStream, Accepted]", answer)
        stream.about = {"agent": accepted.agent or agent, "idempotency_key": key}
        return JobHandle(
            stream, self._life.room, accepted, idempotency_key=key, cancel=self._cancel
        )

    async def subscribe(
        self, job_id: str, *, history: bool = False, from_event_seq: int | None = None
    ) -> ObservedJob:
        """Observe a job that was submitted in another session (§7.6).

        Args:
            job_id: which one.
            history: whether to get the events from before, too.
            from_event_seq: of those, only the ones behind this number of the session that submitted
                the job.

        Raises:
            JobNotFound: there is none, or none that may be observed.
            ArcpError: the class of the refusal's code.
        """
        self._require(Feature.SUBSCRIBE)
        payload: JsonObject = {"job_id": job_id, "history": history}
        if from_event_seq is not None:
            payload["from_event_seq"] = from_event_seq
        session = self._life.session
        session.expect(job_id)
        try:
            answer = await self._life.call(Call(SUBSCRIBE, dumps(payload), job_id=job_id))
        except trio.Cancelled:
            self._unsubscribe(job_id)
            raise
        stream, subscribed = cast("tuple[JobStream, Subscribed]", answer)
        stream.about = {"agent": subscribed.agent, **stream.about}
        return ObservedJob(
            stream, self._life.room, subscribed, unsubscribe=lambda: self._unsubscribe(job_id)
        )

    async def cancel(self, job_id: str, reason: str = "no longer needed") -> None:
        """Ask for the end of a job that was submitted in another session (§7.4).

        Returns when the runtime has agreed to it. Who has a handle has `JobHandle.cancel`.

        Raises:
            ArcpError: the class of the refusal's code; `InvalidRequest` if it has ended already.
        """
        await self._life.call(_cancelling(job_id, reason))

    def jobs(
        self,
        *,
        status: Sequence[str] | None = None,
        agent: str | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
    ) -> JobListing:
        """Iterate over the jobs that may be observed, newest first (§6.6).

        Raises:
            ArcpError: while iterating, the class of the refusal's code.
        """
        self._require(Feature.LIST_JOBS)
        wanted = listing_payload(
            status=status, agent=agent, created_after=created_after, created_before=created_before
        )
        return JobListing(self._list, wanted)

    async def _list(self, wanted: Mapping[str, JsonLike]) -> Jobs:
        return cast("Jobs", await self._life.call(Call(LIST, dumps(wanted))))

    async def _cancel(self, stream: JobStream, reason: str) -> None:
        call = _cancelling(stream.id, reason)
        try:
            await self._life.call(call)
        except InvalidRequest:
            # Repeated on another connection, it finds the job that it has ended.
            if not (call.repeated and stream.status == "cancelled"):
                raise

    def _unsubscribe(self, job_id: str) -> None:
        life = self._life
        if life.session.leave(job_id) and life.link is not None:
            life.link.send("job.unsubscribe", {"job_id": job_id}, job_id=job_id)

    def _require(self, feature: str) -> None:
        # §6.2: neither side uses what was not negotiated.
        if feature not in self.features:
            raise InvalidRequest(f"not negotiated in this session: {feature}")


def _cancelling(job_id: str, reason: str) -> Call:
    return Call(CANCEL, dumps({"job_id": job_id, "reason": reason}), job_id=job_id)
