"""Streamed results: when what an agent writes is sent (§8.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.jobs.streams import UNABLE, Stage, chunks, joined, open_stage

SOON = 0.05
"""Seconds within which what is written is sent."""


@pytest.fixture
async def stage() -> AsyncGenerator[Stage, None]:
    """A stage with the default limits."""
    async with open_stage() as opened:
        yield opened


async def timed_chunks(peer: Peer) -> list[tuple[float, Frame]]:
    """Receive up to a job's end; return each chunk, and when it came."""
    found: list[tuple[float, Frame]] = []
    while True:
        frame = await peer.receive()
        if frame["type"] == "job.result":
            return found
        if frame["type"] == "job.event":
            found.append((trio.current_time(), frame["payload"]["body"]))


@pytest.mark.parametrize("encoding", ["utf8", "base64"])
async def test_each_write_of_a_slow_writer_comes_soon(
    stage: Stage, encoding: str, autojump_clock: MockClock
) -> None:
    """Six writes a second apart come as six chunks, each soon after its write."""

    async def act(job: JobContext) -> None:
        async with job.stream_result(encoding) as out:  # type: ignore[arg-type]
            for n in range(6):
                await out.write(f"token {n} ".encode())
                await trio.sleep(1)

    stage.act = act
    peer = await stage.welcomed()
    began = trio.current_time()
    job_id = (await peer.submit("act"))["job_id"]
    found = await timed_chunks(peer)
    times = [time - began for time, _ in found]
    assert [round(time) for time in times] == [0, 1, 2, 3, 4, 5, 6]
    assert all(0 <= time - round(time) <= SOON for time in times)
    assert found[-1][1]["data"] == ""
    whole = joined([chunk for _, chunk in found], await peer.until_terminal(job_id))
    assert whole == b"".join(b"token %d " % n for n in range(6))


async def test_a_burst_makes_few_chunks(stage: Stage, autojump_clock: MockClock) -> None:
    """10,000 writes in a row make one chunk."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            for _ in range(10_000):
                await out.write("word ")

    found, end = await stage.play(act)
    assert len(found) == 1
    assert joined(found, end) == b"word " * 10_000


async def test_writes_that_follow_each_other_closely_share_chunks(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """Writes a millisecond apart are sent some at a time, and each is sent soon."""
    written: list[float] = []

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            for _ in range(1_000):
                written.append(trio.current_time())
                await out.write("x")
                await trio.sleep(0.001)

    stage.act = act
    peer = await stage.welcomed()
    await peer.submit("act")
    found = await timed_chunks(peer)
    assert 20 <= len(found) <= 70
    came = [time for time, chunk in found for _ in chunk["data"]]
    assert all(0 <= late - early <= SOON for early, late in zip(written, came, strict=True))


async def test_half_a_character_waits_for_the_other(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """A chunk never ends within a character, whenever the rest of it is written."""
    text = "aé漢😀z"

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            for byte in text.encode():
                await out.write(bytes([byte]))
                await trio.sleep(1)

    found, end = await stage.play(act)
    assert [chunk["data"] for chunk in found] == [*text, ""]
    assert joined(found, end) == text.encode()


async def test_a_client_that_does_not_read_gets_larger_chunks(autojump_clock: MockClock) -> None:
    """A client that has fallen behind gets fewer and larger chunks, and all of the result."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            for n in range(1_000):
                await out.write(f"{n:04}")
                await trio.sleep(1)

    async with open_stage(tail_frames=10, heartbeat_seconds=100_000) as stage:
        stage.act = act
        peer = await stage.welcomed(answer_pings=False)
        job_id = (await peer.submit("act"))["job_id"]
        await trio.sleep(990)
        end = await peer.until_terminal(job_id)
        found = chunks(peer, job_id)
        assert joined(found, end) == b"".join(b"%04d" % n for n in range(1_000))
        assert len(found) < 300
        assert max(len(chunk["data"]) for chunk in found) > 1_000


async def test_an_observer_that_does_not_read_delays_nothing(autojump_clock: MockClock) -> None:
    """While the submitter keeps up, chunks come soon, also if another client watches."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            for n in range(100):
                await out.write(f"{n:04}")
                await trio.sleep(1)

    async with open_stage(tail_frames=10, heartbeat_seconds=100_000) as stage:
        stage.act = act
        peer, observer = await stage.welcomed(), await stage.welcomed(answer_pings=False)
        job_id = (await peer.submit("act"))["job_id"]
        await observer.send("job.subscribe", {"job_id": job_id})
        assert len(await timed_chunks(peer)) == 101


@pytest.mark.logs_error("agent failed")
async def test_nothing_is_sent_after_the_block_is_left(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """What a block left by an exception had not sent is dropped, though the job goes on."""

    async def act(job: JobContext) -> Json:
        with suppress(ZeroDivisionError):
            async with job.stream_result() as out:
                await out.write("sent")
                await trio.sleep(1)
                await out.write("dropped")
                raise ZeroDivisionError
        await trio.sleep(10)
        raise ValueError("the end")

    found, _ = await stage.play(act)
    assert [chunk["data"] for chunk in found] == ["sent"]


async def test_without_the_feature_no_chunk_is_sent(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """A client that cannot take chunks gets one inline result, however slowly it is written."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            for _ in range(3):
                await out.write("é")
                await trio.sleep(1)

    found, end = await stage.play(act, peer=await stage.welcomed(features=UNABLE))
    assert (found, end["payload"]["result"]) == ([], "ééé")


async def test_a_task_other_than_the_block_s_may_leave_it(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """A stream does not mind which of the agent's tasks enters, writes and leaves."""

    async def act(job: JobContext) -> None:
        out = job.stream_result()
        for step in (
            out.__aenter__,
            lambda: out.write("x"),
            lambda: out.__aexit__(None, None, None),
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(step)
                await trio.sleep(1)

    assert joined(*await stage.play(act)) == b"x"
