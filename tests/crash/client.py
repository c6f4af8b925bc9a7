"""A client that remembers what it was told across its server's deaths, and compares."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import attrs
import trio

from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.transport.base import Transport, TransportClosed
from arcp_trio.transport.websocket import connect
from tests.crash.process import Server, token_of

FRAME_BYTES: Final = 4 * 1024 * 1024

PATIENCE_SECONDS: Final = 60.0
"""The bound on every wait, on a machine that is busy with other things."""

TOLD_OF_RESTART: Final = "the runtime restarted while the job was running"


class _Tap:
    """A transport that keeps the text of the last message."""

    def __init__(self, transport: Transport) -> None:
        self.last = ""
        self.peer = transport.peer
        self.private = transport.private
        self.writing_since = None
        self.unread = 0
        self._transport = transport

    async def receive(self) -> str | bytes:
        self.last = ""
        text = await self._transport.receive()
        assert isinstance(text, str)
        self.last = text
        return text

    def receive_unread(self) -> Sequence[str | bytes]:
        return ()

    async def send(self, frames: Sequence[bytes]) -> None:
        await self._transport.send(frames)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self._transport.close(code, reason)


@attrs.define(eq=False)
class World:
    """A server, and what all its clients were told."""

    server: Server
    recorder: WireRecorder = attrs.field(factory=WireRecorder)
    accepted: dict[tuple[str, str], Frame] = attrs.field(factory=dict[tuple[str, str], Frame])
    """By principal and key: what the first acceptance said."""
    jobs: dict[str, Frame] = attrs.field(factory=dict[str, Frame])
    """By job: what its acceptance says, whichever session it was sent to."""
    terminals: dict[str, tuple[str, Frame]] = attrs.field(factory=dict[str, tuple[str, Frame]])
    """By job: the id and the payload of its terminal, the same for all sessions."""


@attrs.frozen
class _Promise:
    place: int
    """The number after which the promise stands."""
    text: str


class Client:
    """One session, attached now and then."""

    def __init__(self, world: World, name: str, principal: str) -> None:
        self.world = world
        self.name = name
        self.principal = principal
        self.acked = 0
        self.highest = 0
        self.ended: set[str] = set()
        """Jobs whose terminals this session saw."""
        self.due: set[str] = set()
        """Jobs that must have ended: a process that is gone accepted them."""
        self.keys: dict[str, str | None] = {}
        """The keys that were submitted, and the jobs that they stand for as far as known."""
        self.endless: list[str] = []
        """Requests for jobs that run until they are cancelled or the server is killed."""
        self._session_id: str | None = None
        self._resume_token: str | None = None
        self._texts: dict[int, str] = {}
        self._promises: dict[tuple[str, str], _Promise] = {}
        """By type and job: `job.accepted`, `job.cancelled`."""
        self._repeated: set[tuple[str, str]] = set()
        """Promises that came on this connection."""
        self._cancelled: set[str] = set()
        self._said: dict[str, int] = {}
        """How far each job has counted."""
        self._requests: dict[str, str | None] = {}
        """The key, if any, of each submit."""
        self._answered: dict[str, str] = {}
        """By request: the job that was accepted."""
        self._place = 0
        """The last number on this connection."""
        self._peer: Peer
        self._lost = False
        self._news = trio.Event()

    # -- connections

    @asynccontextmanager
    async def attached(self, after: int | None = None) -> AsyncGenerator[None]:
        """Open the session, or resume it after a number: by default the last one seen.

        Raises:
            TransportClosed, OSError: there is no server.
        """
        after = self.highest if after is None else after
        async with self._connected() as tap:
            self._place, self._repeated = after, set()
            await self._peer.hello(token=token_of(self.principal), resume=self._resume(after))
            assert self._session_id in (None, self._peer.session_id)
            self._session_id = self._peer.session_id
            self._resume_token = self._peer.resume_token
            self._lost = False
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, tap, nursery.cancel_scope)
                # If sending fails, the reader still reads what came before, and then ends.
                with suppress(TransportClosed):
                    yield
                    nursery.cancel_scope.cancel()
            if self._lost:
                raise TransportClosed

    @asynccontextmanager
    async def asking_to_resume(self) -> AsyncGenerator[None]:
        """Send a resume, and do not read the answer."""
        async with self._connected():
            auth = {"scheme": "bearer", "token": token_of(self.principal)}
            payload = self._resume(self.highest) or {}
            await self._peer.send("session.resume", {"auth": auth, **payload})
            yield

    @asynccontextmanager
    async def _connected(self) -> AsyncGenerator[_Tap]:
        stream = await trio.open_tcp_stream("127.0.0.1", self.world.server.port)
        async with stream, connect(stream, max_bytes=FRAME_BYTES) as transport:
            tap = _Tap(transport)
            self._peer = Peer(tap, stream, self.world.recorder)
            self._peer.patience = PATIENCE_SECONDS
            yield tap

    def _resume(self, after: int) -> Frame | None:
        if self._session_id is None:
            return None
        return {
            "session_id": self._session_id,
            "resume_token": self._resume_token,
            "last_event_seq": after,
        }

    async def _read(self, tap: _Tap, rest: trio.CancelScope) -> None:
        try:
            while True:
                frame = await self._peer.receive()
                self._note(frame, tap.last)
                self._news.set()
                self._news = trio.Event()
        except TransportClosed:
            self._lost = True
            rest.cancel()  # nothing more comes on this connection

    # -- what it is sent

    def _note(self, frame: Frame, text: str) -> None:
        kind, number = frame["type"], frame.get("event_seq")
        if number is not None:
            assert self._texts.setdefault(number, text) == text, "a number has another frame"
            self._place = number
            if number > self.highest:
                self.highest = number
                self._note_new(frame)
            return
        assert kind in {"job.accepted", "job.cancelled"}, f"not expected: {text}"
        self._note_promise((kind, frame["payload"]["job_id"]), text)
        if kind == "job.accepted":
            self._note_accepted(frame["payload"])

    def _note_new(self, frame: Frame) -> None:
        job_id, payload = frame["job_id"], frame["payload"]
        if frame["type"] in TERMINAL:
            self._check_terminal(job_id, frame)
            self.ended.add(job_id)
        elif payload["kind"] == "log":
            said = int(payload["body"]["message"])
            assert said == self._said.get(job_id, 0), f"{job_id} goes on with {said}"
            self._said[job_id] = said + 1
        else:
            assert payload["body"]["phase"] == "back_pressure"

    def _check_terminal(self, job_id: str, frame: Frame) -> None:
        payload = frame["payload"]
        first = self.world.terminals.setdefault(job_id, (frame["id"], payload))
        assert first == (frame["id"], payload), f"{job_id} ended in two ways"
        if frame["type"] == "job.result":
            assert self._said.get(job_id, 0) == payload["result"] or (
                # A session that submitted the job's key after its end gets the terminal only.
                job_id in self.keys.values() and job_id not in self._said
            ), f"{job_id} has a hole"
        elif payload["code"] == "CANCELLED":
            assert job_id in self._cancelled
        else:
            accepted_at = self.world.jobs[job_id]["accepted_at"]
            assert accepted_at <= self.world.server.launched_at, f"{job_id} failed: {payload}"
            said = payload["code"], payload["retryable"], payload["message"]
            assert said == ("INTERNAL_ERROR", True, TOLD_OF_RESTART)

    def _note_promise(self, name: tuple[str, str], text: str) -> None:
        # The acceptance of a repeated submit has a text of its own, and no place.
        promise = self._promises.setdefault(name, _Promise(self._place, text))
        if promise.text == text:
            assert promise.place == self._place, f"{name} has moved"
            self._repeated.add(name)

    def _note_accepted(self, payload: Frame) -> None:
        job_id, request_id = payload["job_id"], payload["request_id"]
        said = {name: value for name, value in payload.items() if name != "request_id"}
        assert self.world.jobs.setdefault(job_id, said) == said
        key = self._requests[request_id]
        if key is not None:
            assert self.world.accepted.setdefault((self.principal, key), said) == said
            self.keys[key] = job_id
        self._answered[request_id] = job_id

    # -- what it asks for

    async def submit(self, key: str | None, count: int, burst: int, pause: float) -> str:
        """Submit a job and return the id of the request."""
        request_id = f"{self.name}-{len(self._requests)}"
        self._requests[request_id] = key
        payload: Frame = {"agent": "count", "input": [count, burst, pause]}
        if key is not None:
            self.keys.setdefault(key, None)
            payload["idempotency_key"] = key
        await self._peer.send("job.submit", payload, id=request_id)
        return request_id

    async def submit_keyed(self, key: str) -> str:
        """Submit the job that a key always stands for; it ends within a second."""
        chance = random.Random(key)
        return await self.submit(key, chance.randint(1, 150), chance.randint(1, 20), 0.005)

    async def submit_endless(self) -> None:
        """Submit a job that runs until it is cancelled or the server is killed."""
        self.endless.append(await self.submit(None, 1_000_000, 5, 0.02))

    async def cancel(self) -> None:
        """Cancel an endless job, if one has been accepted."""
        if self.endless and self.endless[0] in self._answered:
            job_id = self._answered[self.endless.pop(0)]
            self._cancelled.add(job_id)
            await self._peer.send("job.cancel", {"job_id": job_id})

    async def ack(self) -> None:
        """Acknowledge everything so far."""
        self.acked = self.highest
        await self._peer.send("session.ack", {"last_processed_seq": self.acked})

    # -- what it waits for

    async def until(self, what: str, missing: Callable[[], object]) -> None:
        """Wait until nothing is missing."""
        with trio.move_on_after(PATIENCE_SECONDS):
            while missing():
                await self._news.wait()
            return
        raise AssertionError(f"{what}: {missing()} still missing at {self._place}: {self}")

    async def answered(self, request_id: str) -> str:
        """Wait for the acceptance of a submit, and return the id of the job."""
        await self.until("acceptance", lambda: {request_id} - self._answered.keys())
        return self._answered[request_id]

    async def ended_all(self, jobs: set[str]) -> None:
        """Wait for the terminals of these jobs."""
        await self.until("terminals", lambda: jobs - self.ended)

    def server_died(self) -> None:
        """Note that every job accepted so far must have an end from now on."""
        self.due = {job_id for _, job_id in self._promises} - self.ended
        self.endless.clear()

    async def caught_up(self, after: int, highest: int) -> None:
        """Wait until everything seen after `after` has come again, and everything due has come."""
        promised = {name for name, promise in self._promises.items() if promise.place >= after}
        await self.until("replay", lambda: range(self._place, highest))
        await self.until("promises", lambda: promised - self._repeated)
        await self.ended_all(set(self.due))

    def some_number(self, chance: random.Random) -> int:
        """Return a number to resume from: mostly the last one, sometimes one before."""
        if chance.random() < 0.5:
            return self.highest
        return chance.randint(max(self.acked, self.highest - 2_000), self.highest)

    def __repr__(self) -> str:
        return f"<{self.name} {self._session_id}: {self.highest} seen, {self.acked} acked>"
