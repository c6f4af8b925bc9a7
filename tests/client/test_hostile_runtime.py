"""A runtime that means harm: what a client takes of it is bounded."""

from __future__ import annotations

import gc

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from arcp_trio import ConnectionFailed, Question, connect
from arcp_trio.client.asked_questions import MOST_OPEN
from arcp_trio.client.dialing import FIRST_FRAME_BYTES
from arcp_trio.client.handshake import MAX_WELCOME_VALUES
from arcp_trio.client.job_stream import JobStream
from arcp_trio.wire.json import Json
from tests.client.support import TOKEN, Wire, scripted

JOBS = 5_000


@pytest.mark.parametrize(
    ("agents", "words"),
    [
        (["x" * FIRST_FRAME_BYTES], "1048576 bytes"),
        ([[]] * (MAX_WELCOME_VALUES // 2), "more than 100,000 values"),
    ],
    ids=["large", "many values"],
)
async def test_a_welcome_is_bounded(
    agents: list[Json], words: str, autojump_clock: MockClock
) -> None:
    """A welcome that is very large, or made of very many values, is refused."""

    async def script(wire: Wire) -> None:
        await wire.welcome(capabilities={"agents": agents})
        await wire.receive()

    async with scripted(script) as runtime:
        with pytest.raises(ConnectionFailed, match=words), trio.fail_after(30):
            async with connect(runtime.open, token=TOKEN, reconnect_seconds=0):
                pytest.fail("it connected")


def streams() -> list[JobStream]:
    """Return the streams of all jobs that are in memory."""
    return [each for each in gc.get_objects() if isinstance(each, JobStream)]


async def test_jobs_that_nobody_asked_for_are_bounded(autojump_clock: MockClock) -> None:
    """However many jobs a runtime says it has accepted, the newest thousand are followed."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("mine")
        for n in range(JOBS):
            body = {"job_id": f"job_{n}", "agent": "a@1", "lease": {}, "parent_job_id": "mine"}
            await wire.send("job.accepted", body, job_id=f"job_{n}")
        await wire.result(1, "mine", "done")
        await wire.end()

    others = {id(each): each for each in streams()}  # that tests before this one have left
    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        assert await job.result() == "done"
        assert sum(id(each) not in others for each in streams()) <= 1_001


async def test_events_of_delegated_jobs_are_still_handed_on(autojump_clock: MockClock) -> None:
    """A delegated job is followed to its end, as one of the session's own."""
    seen: list[str] = []

    async def note(event: object) -> None:
        seen.append(getattr(event, "job_id", ""))

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("mine")
        body = {"job_id": "child", "agent": "a@1", "lease": {}, "parent_job_id": "mine"}
        await wire.send("job.accepted", body, job_id="child")
        await wire.log(1, "child", "at work")
        await wire.result(2, "child", 1)
        await wire.result(3, "mine", "done")
        await wire.end()

    async with (
        scripted(script) as runtime,
        connect(runtime.open, token=TOKEN, on_event=note) as client,
    ):
        job = await client.submit("echo")
        assert await job.result() == "done"
    assert seen == ["child"]


async def test_questions_that_are_never_over_are_bounded(autojump_clock: MockClock) -> None:
    """However many questions a job has, the handler is at work for the newest thousand."""
    at_work = 0

    async def script(wire: Wire) -> None:
        await wire.welcome(capabilities={"features": ["x-vendor.arcp-trio.questions"]})
        await wire.accept("mine")
        for n in range(JOBS):
            body = {"question_id": f"q{n}", "prompt": "?"}
            await wire.event(n + 1, "mine", "x-vendor.arcp-trio.question", body)
        await wire.receive("job.cancel")
        await wire.result(JOBS + 1, "mine", "done")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:

        @client.on_question
        async def answer(_: Question) -> None:
            nonlocal at_work
            at_work += 1
            try:
                await trio.sleep_forever()
            finally:
                at_work -= 1

        job = await client.submit("echo")
        async for event in job.events():
            if event.seq == JOBS:
                await trio.testing.wait_all_tasks_blocked()
                assert at_work <= MOST_OPEN
                with trio.move_on_after(1):
                    await job.cancel()
