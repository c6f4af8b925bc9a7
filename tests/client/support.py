"""Runtimes for the tests of the client to connect to: real ones and scripted ones."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio
from attrs import define, field

from arcp_trio import JobContext, Limits, MemoryStore, Runtime, StaticTokens
from arcp_trio.front.serve import serve_stream
from arcp_trio.testing import TrioClock
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import Transport, TransportClosed, memory_streams
from arcp_trio.wire.ids import new_id, resume_token
from arcp_trio.wire.json import Json
from tests.transport.peers import answer

TOKEN = "s3cret"
MAX_BYTES = 4 * 1024 * 1024


# -- the real runtime


@asynccontextmanager
async def real_runtime(**limits: Any) -> AsyncGenerator[Runtime, None]:
    """Run a runtime with a few agents during the block."""
    runtime = Runtime(
        auth=StaticTokens({TOKEN: "alice"}),
        store=MemoryStore(),
        clock=TrioClock(),
        limits=Limits(**limits),
    )
    for agent in (count, echo, stuck, paced, failing, report, curious):
        runtime.agent(agent.__name__, version="1.0.0")(agent)
    async with runtime:
        yield runtime


async def count(job: JobContext) -> Json:
    """Log the numbers below the input."""
    for number in range(job.input):
        await job.log(str(number))
    return {"n": job.input}


async def echo(job: JobContext) -> Json:
    """Return the input."""
    return job.input


async def stuck(job: JobContext) -> None:
    """Wait until the job is cancelled."""
    await job.status("waiting")
    await trio.sleep_forever()


async def paced(job: JobContext) -> Json:
    """Log the numbers below the input, one each second."""
    for number in range(job.input):
        await trio.sleep(1)
        await job.log(str(number))
    return {"n": job.input}


async def failing(job: JobContext) -> None:
    """End in an error that the client may read."""
    from arcp_trio import JobError

    raise JobError("no luck", details={"tries": 3})


async def report(job: JobContext) -> None:
    """Stream a result; the input is the number of its pieces."""
    async with job.stream_result(encoding="utf8") as out:
        for number in range(job.input):
            await out.write(f"piece {number}; ")


async def curious(job: JobContext) -> Json:
    """Ask one question after the other, as many as the input says, and return the answers."""
    return [await job.ask(f"question {number}?") for number in range(job.input)]


@define
class Network:
    """Connects clients to a runtime. `streams` are the clients' ends of the connections."""

    runtime: Runtime
    streams: list[trio.abc.Stream] = field(factory=list)
    up: bool = True

    async def open(self) -> trio.abc.Stream:
        """Connect."""
        if not self.up:
            raise OSError("the network is down")
        ours, theirs = memory_streams()
        serve = partial(serve_stream, self.runtime, theirs, "memory", private=True)
        self.runtime.start_connection(serve, "memory")
        self.streams.append(ours)
        return ours

    async def cut(self) -> None:
        """End the newest connection without a closing handshake."""
        await trio.aclose_forcefully(self.streams[-1])


# -- scripted runtimes

Script = Callable[["Wire"], Awaitable[None]]


class Wire:
    """The runtime's end of one connection."""

    def __init__(self, transport: Transport, session_id: str, *, token: str) -> None:
        self.transport = transport
        self.session_id = session_id
        self.token = token
        self.hello: Frame = {}
        self.seen: list[Frame] = []

    async def receive(self, *kinds: str) -> Frame:
        """Return the next frame, or the next of these types; others are only noted in `seen`."""
        while True:
            frame: Frame = json.loads(await self.transport.receive())
            self.seen.append(frame)
            if not kinds or frame["type"] in kinds:
                return frame

    async def send(self, kind: str, payload: Json = None, /, **envelope: Json) -> None:
        """Send a frame of the session. Fields in `envelope` are added, or left out if None."""
        frame: Frame = {"arcp": "1.1", "id": new_id(), "type": kind}
        frame["session_id"] = self.session_id
        frame = {**frame, **envelope, "payload": {} if payload is None else payload}
        kept = {name: value for name, value in frame.items() if value is not None}
        await self.transport.send([json.dumps(kept).encode()])

    async def welcome(self, *, frame_id: str | None = None, **fields: Json) -> Frame:
        """Take the hello and answer it. Fields that are None are left out."""
        self.hello = await self.receive("session.hello")
        features = self.hello["payload"]["capabilities"]["features"]
        payload = {
            "runtime": {"name": "script", "version": "1"},
            "session_id": self.session_id,
            "accepted_at": "2026-01-01T00:00:00.000Z",
            "resume_token": self.token,
            "resume_window_sec": 60,
            "heartbeat_interval_sec": 30,
            "capabilities": {"encodings": ["json"], "features": features, "agents": ["echo"]},
        }
        payload |= fields
        payload = {name: value for name, value in payload.items() if value is not None}
        await self.send("session.welcome", payload, id=frame_id or new_id())
        return self.hello

    async def accept(self, job_id: str, submit: Frame | None = None, **extra: Json) -> None:
        """Accept a submit: the next one, unless `submit` is given."""
        submit = submit or await self.receive("job.submit")
        payload = {"job_id": job_id, "request_id": submit["id"], "agent": "echo@1", "lease": {}}
        payload = {name: value for name, value in (payload | extra).items() if value is not None}
        await self.send("job.accepted", payload, job_id=job_id)

    async def log(self, seq: int, job_id: str, message: str) -> None:
        """Send a log event."""
        await self.event(seq, job_id, "log", {"level": "info", "message": message})

    async def event(self, seq: int, job_id: str, kind: str, body: Json) -> None:
        """Send an event."""
        payload = {"kind": kind, "ts": "2026-01-01T00:00:00Z", "body": body}
        await self.send("job.event", payload, job_id=job_id, event_seq=seq)

    async def result(self, seq: int, job_id: str, value: Json = None, **fields: Json) -> None:
        """Send a result."""
        payload = fields or {"final_status": "success", "result": value}
        await self.send("job.result", payload, job_id=job_id, event_seq=seq)

    async def end(self) -> None:
        """Read up to the frame that closes the session, and answer it."""
        await self.receive("session.close", "session.bye")
        await self.send("session.closed")
        await self.transport.close()


class Scripted:
    """A runtime that follows one script per connection. Further connections get the last script."""

    def __init__(self, nursery: trio.Nursery, *scripts: Script, token: str | None = None) -> None:
        self.wires: list[Wire] = []
        self._nursery = nursery
        self._scripts = list(scripts)
        self._token = token or resume_token()
        self._session_id = new_id("sess_")

    async def open(self) -> trio.abc.Stream:
        """Connect."""
        ours, theirs = memory_streams()
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        self._nursery.start_soon(self._serve, theirs, script)
        return ours

    async def _serve(self, stream: trio.abc.Stream, script: Script) -> None:
        with suppress(TransportClosed):
            async with answer(stream, max_bytes=MAX_BYTES, peer="client") as transport:
                wire = Wire(transport, self._session_id, token=self._token)
                self.wires.append(wire)
                await script(wire)


@asynccontextmanager
async def scripted(*scripts: Script, **options: Any) -> AsyncGenerator[Scripted, None]:
    """Run a scripted runtime during the block."""
    async with trio.open_nursery() as nursery:
        yield Scripted(nursery, *scripts, **options)
        nursery.cancel_scope.cancel()
