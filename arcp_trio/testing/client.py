"""A small client for tests of agents. It does not reconnect."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

import msgspec
import trio

from arcp_trio.testing.background import background_tasks
from arcp_trio.testing.frames import TERMINAL, Frame, parse_frame
from arcp_trio.testing.inbox import Answer, Event, Inbox
from arcp_trio.testing.job import JobHandle, JobStream
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.transport.base import Transport, TransportClosed
from arcp_trio.wire.errors import error_from_payload
from arcp_trio.wire.features import Feature
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json, JsonObject

FEATURES: Final = (Feature.HEARTBEAT, Feature.PROGRESS, Feature.AGENT_VERSIONS)
"""What this client can do. It cannot assemble chunks, so results come inline to it."""

UNSENT_FRAMES: Final = 64
"""Past these, callers wait."""

CLOSE_SECONDS: Final = 10.0
"""How long leaving waits for the session's end, and for handlers to be done with their events."""

EventHandler: TypeAlias = Callable[[Event], Awaitable[None]]


class PairClient:
    """A connected client; `arcp_trio.testing.open_pair` makes one.

    Every frame it receives goes through its `recorder`, which checks it.
    """

    def __init__(self, transport: Transport, *, on_event: EventHandler | None = None) -> None:
        self.recorder = WireRecorder()
        self.session_id = ""
        self.features: frozenset[str] = frozenset()
        self.agents: list[JsonObject] = []
        self._transport = transport
        self._on_event = on_event
        self._record = self.recorder.connection()
        self._outgoing, self._unsent = trio.open_memory_channel[bytes](UNSENT_FRAMES)
        self._inbox = Inbox(to_handler=on_event is not None)
        self._calls: dict[str, Answer] = {}
        self._cancels: dict[str, str] = {}
        self._jobs: dict[str, JobStream] = {}
        self._closed = Answer()
        self._gone: TransportClosed | None = None

    @asynccontextmanager
    async def session(self, *, token: str) -> AsyncGenerator[None, None]:
        """Open the session for as long as the block lasts."""
        async with background_tasks() as nursery:
            nursery.start_soon(self._write, name="client writer")
            await self._shake_hands(token)
            nursery.start_soon(self._read, name="client reader")
            nursery.start_soon(self._inbox.hand_on_all, self._hand_on, name="client consumer")
            try:
                yield
            finally:
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    await self._close()

    async def submit(
        self,
        agent: str,
        input: Json = None,  # noqa: A002 - the name it has on the wire
        *,
        idempotency_key: str | None = None,
        max_runtime: int | None = None,
    ) -> JobHandle:
        """Submit a job.

        Raises:
            ArcpError: the class of the refusal's code.
        """
        payload: JsonObject = {"agent": agent, "input": input}
        if idempotency_key is not None:
            payload["idempotency_key"] = idempotency_key
        if max_runtime is not None:
            payload["max_runtime_sec"] = max_runtime
        accepted = await self._call("job.submit", payload)
        return JobHandle(self._job(accepted["payload"]["job_id"]), self._cancel)

    async def _hand_on(self, event: Event) -> None:
        """Give one event to whoever it is for; the next one comes when this returns."""
        if self._on_event is None:
            self._job(event.job_id).put(event)
        else:
            await self._on_event(event)
            self._inbox.event_read()

    async def _cancel(self, job_id: str, reason: str) -> None:
        payload = {"job_id": job_id, "reason": reason}
        await self._call("job.cancel", payload, cancels=job_id)

    async def _shake_hands(self, token: str) -> None:
        hello = {
            "client": {"name": "arcp_trio.testing", "version": "1"},
            "auth": {"scheme": "bearer", "token": token},
            "capabilities": {"encodings": ["json"], "features": list(FEATURES)},
        }
        await self._send("session.hello", hello)
        welcome = await self._receive()
        if welcome["type"] == "session.error":
            raise error_from_payload(welcome["payload"])
        self.session_id = welcome["session_id"]
        capabilities = welcome["payload"]["capabilities"]
        self.features = frozenset(FEATURES) & frozenset(capabilities["features"])
        self.agents = capabilities["agents"]

    async def _close(self) -> None:
        with suppress(TransportClosed):
            await self._send("session.close", {"reason": "done"})
            await self._inbox.wait(self._closed)

    async def _call(self, kind: str, payload: JsonObject, *, cancels: str | None = None) -> Frame:
        request, answer = new_id(), Answer()
        self._calls[request] = answer
        if cancels is not None:
            self._cancels[request] = cancels
        try:
            await self._send(kind, payload, id=request)
            frame = await self._inbox.wait(answer)
        finally:
            del self._calls[request]
            self._cancels.pop(request, None)
        if frame["type"] == "session.error":
            raise error_from_payload(frame["payload"])
        return frame

    async def _send(self, kind: str, payload: JsonObject, **envelope: str) -> None:
        if self._gone is not None:
            raise self._gone
        try:
            await self._outgoing.send(self._frame(kind, payload, **envelope))
        except trio.BrokenResourceError:
            raise TransportClosed from None

    def _frame(self, kind: str, payload: JsonObject, **envelope: str) -> bytes:
        frame: Frame = {"arcp": "1.1", "id": new_id(), "type": kind, **envelope}
        if self.session_id:
            frame["session_id"] = self.session_id
        return msgspec.json.encode(frame | {"payload": payload})

    async def _write(self) -> None:
        # In a task of its own: a caller's cancellation must not tear a frame.
        with suppress(TransportClosed):
            async with self._unsent:
                async for frame in self._unsent:
                    await self._transport.send([frame])

    async def _receive(self) -> Frame:
        frame = parse_frame(await self._transport.receive())
        self._record.saw(frame)
        return frame

    async def _read(self) -> None:
        why = TransportClosed()
        try:
            while True:
                await self._inbox.room()
                self._take(await self._receive())
        except TransportClosed as exc:
            why = exc
        finally:
            self._end(why)

    def _end(self, why: TransportClosed) -> None:
        self._gone = why
        for answer in [*self._calls.values(), self._closed]:
            if not answer.arrived.is_set():
                self._inbox.put_answer(answer, why, answer.in_turn.set)
        for job in self._jobs.values():
            if not job.end.arrived.is_set():
                self._inbox.put_answer(job.end, why, job.finish)

    def _take(self, frame: Frame) -> None:
        kind, payload = frame["type"], frame["payload"]
        if kind == "session.ping":
            self._pong(payload)
        elif kind == "job.event":
            self._inbox.put_event(
                Event(
                    seq=frame["event_seq"],
                    job_id=frame["job_id"],
                    kind=payload["kind"],
                    body=payload["body"],
                    ts=payload["ts"],
                )
            )
        elif kind in TERMINAL:
            job = self._job(frame["job_id"])
            self._inbox.put_answer(job.end, frame, job.finish)
        elif (answer := self._answered_by(frame)) is not None:
            self._inbox.put_answer(answer, frame, answer.in_turn.set)

    def _answered_by(self, frame: Frame) -> Answer | None:
        if frame["type"] == "session.closed":
            return self._closed
        request = frame["payload"].get("request_id")
        if frame["type"] == "job.cancelled":
            # It does not name its request, but requests are answered in order.
            job_id = frame["job_id"]
            request = next((call for call, job in self._cancels.items() if job == job_id), "")
            self._cancels.pop(request, None)
        return self._calls.get(request)

    def _pong(self, ping: JsonObject) -> None:
        pong = {"ping_nonce": ping["nonce"], "received_at": ping["sent_at"]}
        # With that many frames still to be sent, any of them serves as a sign of life.
        with suppress(trio.WouldBlock, trio.BrokenResourceError):
            self._outgoing.send_nowait(self._frame("session.pong", pong))

    def _job(self, job_id: str) -> JobStream:
        # Made at the first mention: events may come before the caller of `submit` goes on.
        if job_id not in self._jobs:
            self._jobs[job_id] = JobStream(job_id, self._inbox)
        return self._jobs[job_id]
