"""Subscribing: history, then what is live, then the end, in the subscriber's own numbers (§7.6)."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, Runtime
from arcp_trio.testing import Peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.jobs.runtimes import make_runtime


@pytest.fixture
async def runtime() -> AsyncGenerator[Runtime, None]:
    """A runtime with an agent that says a number every second."""
    async with make_runtime() as entered:

        @entered.agent("counter")
        async def counter(job: JobContext) -> Json:
            for number in range(job.input):
                await job.log(str(number))
                await trio.sleep(1)
            return "done"

        yield entered


async def frames_until_end(peer: Peer, job_id: str) -> list[Frame]:
    """Everything up to a job's terminal."""
    seen: list[Frame] = []
    while True:
        seen.append(await peer.receive())
        if seen[-1].get("job_id") == job_id and seen[-1]["type"] in ("job.result", "job.error"):
            return seen


async def subscribed(peer: Peer, job_id: str, **fields: Json) -> Frame:
    """Subscribe, and what that is answered."""
    await peer.send("job.subscribe", {"job_id": job_id} | fields)
    return await peer.expect("job.subscribed")


def said(frames: list[Frame]) -> list[Json]:
    """The words of the log events, and the types of other frames."""
    bodies = [frame["payload"].get("body") or {} for frame in frames]
    return [body.get("message", frame["type"]) for body, frame in zip(bodies, frames, strict=True)]


@pytest.mark.spec("7.6-1")
async def test_history_then_live_then_the_end(runtime: Runtime, autojump_clock: MockClock) -> None:
    """Another session of the principal sees all of it, each event once, in its own numbers."""
    async with open_peers(runtime) as peers:
        owner, watcher = await peers.connect(), await peers.connect()
        await owner.hello()
        await watcher.hello()
        job_id = (await owner.submit("counter", 6))["job_id"]
        await trio.sleep(3.5)
        answer = await subscribed(watcher, job_id, history=True)
        assert answer["payload"]["replayed"] is True
        assert answer["payload"]["current_status"] == "running"
        frames = await frames_until_end(watcher, job_id)
        assert said(frames) == ["0", "1", "2", "3", "4", "5", "job.result"]
        assert [frame["event_seq"] for frame in frames] == [1, 2, 3, 4, 5, 6, 7]


async def test_from_a_number_of_the_submitter(runtime: Runtime, autojump_clock: MockClock) -> None:
    """`from_event_seq` is one of the submitting session's numbers, and is not repeated itself."""
    async with open_peers(runtime) as peers:
        owner, watcher = await peers.connect(), await peers.connect()
        await owner.hello()
        await watcher.hello()
        other = await owner.submit("counter", 1)
        await frames_until_end(owner, other["job_id"])
        job_id = (await owner.submit("counter", 6))["job_id"]
        await trio.sleep(3.5)
        await subscribed(watcher, job_id, history=True, from_event_seq=4)
        frames = await frames_until_end(watcher, job_id)
        assert said(frames) == ["2", "3", "4", "5", "job.result"]


async def test_live_only(runtime: Runtime, autojump_clock: MockClock) -> None:
    """Without history only what is emitted from then on comes; after an unsubscribe nothing."""
    async with open_peers(runtime) as peers:
        owner, watcher = await peers.connect(), await peers.connect()
        await owner.hello()
        await watcher.hello()
        job_id = (await owner.submit("counter", 8))["job_id"]
        await trio.sleep(2.5)
        answer = await subscribed(watcher, job_id)
        assert answer["payload"]["replayed"] is False
        await trio.sleep(2)
        await watcher.send("job.unsubscribe", {"job_id": job_id})
        await trio.sleep(1)
        answer = await subscribed(watcher, job_id)
        frames = await frames_until_end(watcher, job_id)
        events = [frame for frame in watcher.seen if frame["type"] == "job.event"]
        assert said([*events, *frames]) == ["3", "4", "6", "7", "job.result"]
