"""Streamed results: how a job that streams may end (§8.4)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError, JobContext
from arcp_trio.wire.json import Json
from tests.jobs.streams import Act, Stage, chunks, failure, joined, open_stage


@pytest.fixture
async def stage() -> AsyncGenerator[Stage, None]:
    """A stage with the default limits."""
    async with open_stage() as opened:
        yield opened


async def value_beside(job: JobContext) -> Json:
    """Stream a result and return a value."""
    async with job.stream_result() as out:
        await out.write("streamed")
    return "returned"


async def unfinished(job: JobContext) -> None:
    """Fail within the stream's block, and carry on."""
    with suppress(ZeroDivisionError):
        async with job.stream_result() as out:
            await out.write("x" * 10)
            await out.write("x" * (10 // 0))


async def unfinished_with_value(job: JobContext) -> Json:
    """Fail within the stream's block, and return a value instead."""
    await unfinished(job)
    return "instead"


async def half_a_character(job: JobContext) -> None:
    """Leave the last character incomplete, and carry on."""
    with pytest.raises(ValueError, match="unexpected end of data"):
        async with job.stream_result() as out:
            await out.write("é".encode()[:1])


async def given_up(job: JobContext) -> None:
    """Run out of time before the end of the stream, and carry on."""
    with trio.move_on_after(1):
        async with job.stream_result() as out:
            await out.write("x" * 10)
            await trio.sleep_forever()


async def two(job: JobContext) -> None:
    """Stream two results, and carry on."""
    async with job.stream_result() as out:
        await out.write("one")
    with pytest.raises(InternalError):
        async with job.stream_result():
            raise AssertionError("never reached")


async def two_at_once(job: JobContext) -> None:
    """Stream a result within the block of another."""
    async with job.stream_result() as out:
        await out.write("one")
        async with job.stream_result():
            raise AssertionError("never reached")


BESIDE = "the agent returned a value beside its streamed result"
UNFINISHED = "the agent did not finish its streamed result"
ONLY_ONE = "a job has only one streamed result"


def told(act: Act, message: str) -> Any:
    """Return a case that is also logged as an error."""
    return pytest.param(act, message, marks=pytest.mark.logs_error(message))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        told(value_beside, BESIDE),
        told(unfinished, UNFINISHED),
        told(unfinished_with_value, BESIDE),
        told(half_a_character, UNFINISHED),
        told(given_up, UNFINISHED),
        told(two, ONLY_ONE),
        (two_at_once, ONLY_ONE),  # the agent's own error
    ],
)
@pytest.mark.spec("8.4-10", "8.4-11")
async def test_half_a_result_is_no_success(
    act: Act, message: str, autojump_clock: MockClock
) -> None:
    """A job whose result is unfinished, or not its only one, fails whatever its agent does."""
    async with open_stage(chunk_bytes=4) as stage:
        found, end = await stage.play(act)
        assert failure(end) == ("INTERNAL_ERROR", message)
        assert "result_id" not in end["payload"]
        assert all(chunk["more"] for chunk in found) or act in (value_beside, two)


async def test_a_job_that_streams_can_be_cancelled(autojump_clock: MockClock) -> None:
    """A cancelled stream leaves its chunks, none of them the last, and ends as cancelled."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            while True:
                await out.write("word")
                await trio.sleep(1)

    async with open_stage(chunk_bytes=4) as stage:
        stage.act = act
        peer = await stage.welcomed()
        job_id = (await peer.submit("act"))["job_id"]
        await peer.expect("job.event")
        await peer.send("job.cancel", {"job_id": job_id})
        end = await peer.until_terminal(job_id)
        assert end["payload"]["final_status"] == "cancelled"
        assert [chunk["more"] for chunk in chunks(peer, job_id)] == [True]


async def test_what_a_cancelled_write_was_given_is_taken(autojump_clock: MockClock) -> None:
    """A write that is cancelled while it waits leaves no hole in the result."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            with trio.CancelScope() as scope:
                scope.cancel()
                await out.write("one two three ")
            assert scope.cancelled_caught
            await out.write("four")

    async with open_stage(chunk_bytes=4) as stage:
        assert joined(*await stage.play(act)) == b"one two three four"


async def test_an_agent_that_fails_behind_its_result_has_failed(
    stage: Stage, autojump_clock: MockClock
) -> None:
    """An agent that raises after its whole result was sent has failed."""

    async def act(job: JobContext) -> None:
        async with job.stream_result() as out:
            await out.write("x")
        raise InternalError("too late")

    found, end = await stage.play(act)
    assert (len(found), failure(end)) == (1, ("INTERNAL_ERROR", "too late"))
