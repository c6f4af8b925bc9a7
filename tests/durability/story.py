"""Two clients that go through a story, whatever happens to the runtime or its store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import trio

from arcp_trio import (
    Agents,
    InternalError,
    JobContext,
    Json,
    Limits,
    MemoryStore,
    Provisioner,
)
from arcp_trio.nurseries import tasks_beside
from arcp_trio.testing import TrioClock
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.testing.peer import Peer
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.transport import TransportClosed
from tests.ordering.lines import line
from tests.stage import make_runtime

FEATURES = ("ack", "progress", "agent_versions")

PATIENCE_SECONDS = 120.0


class World:
    """A runtime over a store, with agents whose runs are counted, and a record of the wire."""

    def __init__(
        self,
        store: MemoryStore,
        *,
        recorder: WireRecorder | None = None,
        clock: TrioClock | None = None,
        provisioner: Provisioner | None = None,
        **limits: float,
    ) -> None:
        self.store = store
        self.recorder = recorder or WireRecorder()
        self.clock = clock or TrioClock()
        self.runs: list[str] = []
        """The id of each job whose agent was called."""
        self.look: Callable[[Client, Frame], None] = lambda _, __: None
        """Called with each frame that a client is about to note, welcomes included."""
        self.runtime = make_runtime(
            Agents(),
            store=store,
            limits=Limits(**limits),  # type: ignore[arg-type]
            clock=self.clock,
            provisioner=provisioner,
        )

        @self.runtime.agent("teller")
        async def teller(job: JobContext) -> Json:
            """Log as many lines as its input says, one every half second."""
            self.runs.append(job.id)
            for n in range(job.input):
                await job.log(str(n))
                await trio.sleep(0.5)
            return job.input

        @self.runtime.agent("waiter")
        async def waiter(job: JobContext) -> Json:
            """Log a line, and wait to be cancelled."""
            self.runs.append(job.id)
            await job.log("0")
            return await trio.sleep_forever()

    def connect(self) -> Peer:
        """Open a connection."""
        near, far = line()
        deadline = trio.current_time() + 10
        attend = partial(self.runtime.attend, far, deadline=deadline)
        self.runtime.start_connection(attend, "connection")
        return Peer(near, cast("trio.abc.Stream", near), self.recorder)


class Client:
    """A client that always reads, reconnects after every loss, and repeats unanswered requests."""

    def __init__(self, world: World, *, by_token: bool = False) -> None:
        """Make a client; with `by_token`, its resumes do not name their session."""
        self.frames: list[Frame] = []
        """All frames that it was sent, in order."""
        self.closings: list[int | None] = []
        """The close codes of the connections that it did not end itself."""
        self.refused = 0
        """How many of its requests were refused as retryable."""
        self.keys: dict[str, Frame] = {}
        """The payloads of submits by their keys."""
        self.keyed: dict[str, str] = {}
        """Ids of jobs by their keys."""
        self.session_id = ""
        self.token = ""
        self.floor = 0
        """The number that it acknowledged last."""
        self._world = world
        self._by_token = by_token
        self._peer: Peer | None = None
        self._away = False
        self._attached_at = 0
        """How many frames it had when this connection began."""
        self._changed = trio.lowlevel.ParkingLot()

    @property
    def highest(self) -> int:
        """The highest number it has seen, or what it acknowledged before it saw any."""
        numbers: list[int] = [f["event_seq"] for f in self.frames if "event_seq" in f]
        return max([self.floor, *numbers])

    async def run(self) -> None:
        """Be connected, until cancelled."""
        while True:
            peer = await self._attach()
            self._attached_at = len(self.frames)
            try:
                while True:
                    frame = await peer.receive()
                    self._world.look(self, frame)
                    self.frames.append(frame)
                    self._changed.unpark_all()
            except TransportClosed as closed:
                if not self._away:
                    self.closings.append(closed.code)
                    self._check_farewell()
            self._peer = None
            self._changed.unpark_all()
            await self.until(lambda: not self._away)

    def _check_farewell(self) -> None:
        """Check that the last frame of a connection that failed says why."""
        errors = [
            f["payload"] for f in self.frames[self._attached_at :] if f["type"] == "session.error"
        ]
        errors = [error for error in errors if "request_id" not in error]
        assert [(e["code"], e["retryable"]) for e in errors] == [("INTERNAL_ERROR", True)], errors
        assert self.frames[-1]["payload"] == errors[0], self.frames[-1]

    async def _attach(self) -> Peer:
        while True:
            peer = self._world.connect()
            try:
                welcome = await peer.hello(features=FEATURES, resume=self._resume())
            except (InternalError, TransportClosed):
                self.refused += 1
                await trio.sleep(1)
                continue
            assert peer.session_id is not None
            assert peer.resume_token is not None
            self.session_id, self.token = peer.session_id, peer.resume_token
            self._world.look(self, welcome)
            self._peer = peer
            self._changed.unpark_all()
            return peer

    def _resume(self) -> Frame | None:
        if not self.session_id:
            return None
        resume = {"resume_token": self.token, "last_event_seq": self.highest}
        return resume if self._by_token else {"session_id": self.session_id, **resume}

    # -- its steps

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until the condition is true."""
        with trio.move_on_after(PATIENCE_SECONDS):
            while not holds():
                await self._changed.park()
            return
        raise AssertionError(f"it never comes, only {[frame['type'] for frame in self.frames]}")

    async def send(self, kind: str, payload: Frame) -> str | None:
        """Send a frame, and return its id; None if the connection is lost."""
        await self.until(lambda: self._peer is not None)
        assert self._peer is not None
        try:
            return await self._peer.send(kind, payload)
        except TransportClosed:
            return None

    async def submit(self, agent: str, input: Json = None, *, key: str | None = None) -> str:  # noqa: A002
        """Submit a job, again and again until it is accepted, and return its id."""
        payload: Frame = {"agent": agent, "input": input}
        if key is not None:
            payload["idempotency_key"] = key
            self.keys[key] = payload
        while True:
            answer = await self._ask("job.submit", payload)
            if answer is not None and answer["type"] == "job.accepted":
                job_id: str = answer["payload"]["job_id"]
                if key is not None:
                    self.keyed[key] = job_id
                return job_id
            self.refused += 1
            await trio.sleep(1)

    async def _ask(self, kind: str, payload: Frame) -> Frame | None:
        """Send a request, and return the answer; None if the connection is lost before it comes."""
        request = await self.send(kind, payload)
        peer = self._peer
        await self.until(lambda: self._answer(request) or self._peer is not peer)
        if self._answer(request) is None:
            # The answer may come after a reconnect.
            await self.until(lambda: self._peer is not None)
            await trio.sleep(1)
        return self._answer(request)

    def _answer(self, request: str | None) -> Frame | None:
        answers = [f for f in self.frames if f["payload"].get("request_id") == request]
        return answers[0] if request and answers else None

    async def cancel(self, job_id: str) -> None:
        """Cancel a job, with repeated requests until it is cancelled."""
        while not self.terminal(job_id):
            closings, frames = len(self.closings), len(self.frames)
            await self.send("job.cancel", {"job_id": job_id})
            await self.until(partial(self._cancel_done, job_id, closings, frames))
            await trio.sleep(1)

    def _cancel_done(self, job_id: str, closings: int, frames: int) -> bool:
        """Return whether the job has ended, or the request has to be repeated."""
        errors = [f for f in self.frames[frames:] if f["type"] == "session.error"]
        return bool(self.terminal(job_id) or errors or len(self.closings) > closings)

    async def ack(self) -> None:
        """Acknowledge all frames so far."""
        self.floor = seq = self.highest
        await self.send("session.ack", {"last_processed_seq": seq})

    async def drop(self) -> None:
        """Drop the connection, and do not reconnect."""
        await self.until(lambda: self._peer is not None)
        assert self._peer is not None
        self._away = True
        await self._peer.transport.close(1006)
        await self.until(lambda: self._peer is None)

    def come_back(self) -> None:
        """Connect again."""
        self._away = False
        self._changed.unpark_all()

    def terminal(self, job_id: str) -> Frame | None:
        """Return the terminal of a job, if the client has received it."""
        ends = [f for f in self.frames if f["type"] in TERMINAL and f["job_id"] == job_id]
        return ends[0] if ends else None

    async def end_of(self, job_id: str) -> Frame:
        """Wait for the end of a job."""
        await self.until(lambda: self.terminal(job_id))
        end = self.terminal(job_id)
        assert end is not None
        return end

    async def event_of(self, job_id: str) -> None:
        """Wait for an event of a job."""
        await self.until(lambda: self.told(job_id))

    def told(self, job_id: str) -> list[str]:
        """Return the events of a job that the client has received."""
        events = self._world.recorder.events(job_id, session_id=self.session_id)
        return [event["payload"]["body"]["message"] for event in events]

    @property
    def jobs(self) -> set[str]:
        """The ids of the jobs that the client was told of."""
        return {f["payload"]["job_id"] for f in self.frames if f["type"] == "job.accepted"}


@asynccontextmanager
async def two_clients(world: World) -> AsyncGenerator[tuple[Client, Client], None]:
    """Connect two clients of an entered world for the length of the block."""
    async with tasks_beside() as nursery:
        clients = Client(world), Client(world, by_token=True)
        for client in clients:
            nursery.start_soon(client.run)
        yield clients


async def tell_story(world: World, one: Client, other: Client) -> None:
    """Go through submits with and without a key, acknowledgements, a reconnect and a cancel."""
    shared = await one.submit("teller", 4, key="shared")
    cancelled = await other.submit("waiter", key="cancelled")
    await one.event_of(shared)
    assert await other.submit("teller", 4, key="shared") == shared
    await one.ack()
    await one.drop()
    await trio.sleep(0.7)
    one.come_back()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other.cancel, cancelled)
        plain = await one.submit("teller", 2)
    await other.drop()
    for job_id in (shared, plain):
        assert (await one.end_of(job_id))["type"] == "job.result"
    other.come_back()
    assert (await other.end_of(shared))["type"] == "job.result"
    assert (await other.end_of(cancelled))["payload"]["code"] == "CANCELLED"
    assert await other.submit("waiter", key="cancelled") == cancelled
    assert await one.submit("waiter", key="cancelled") == cancelled
    assert await other.submit("teller", 4, key="shared") == shared
    assert (await one.end_of(cancelled))["payload"]["code"] == "CANCELLED"
    await other.ack()
    whole = {shared: told(4), plain: told(2), cancelled: told(1)}
    for client, own in ((one, {shared, plain}), (other, {cancelled})):
        for job_id in client.jobs:
            # A session that submits under the key of an ended job gets only the end.
            late = [] if job_id not in own else whole[job_id]
            # What is not known here is the submit without a key, run twice; see below.
            assert client.told(job_id) in (whole.get(job_id, whole[plain]), late)
    # No key ran twice. A submit without a key may have run twice, if its answer was lost; then its
    # client knows of both jobs.
    assert set(world.runs) == one.jobs | other.jobs
    assert len(world.runs) == len(set(world.runs))


def told(lines: int) -> list[str]:
    """Return the messages that an agent logs in this number of lines."""
    return [str(n) for n in range(lines)]
