"""How a program ends: by an error, a crash, a cancel, or the end of the runtime."""

from __future__ import annotations

import pytest
import trio

import arcp_trio
from arcp_trio import (
    InternalError,
    JobCancelled,
    JobFailed,
    JobTimedOut,
    Limits,
    stdio_agent,
)
from arcp_trio.testing import open_pair
from tests.processes import alive, gone, has_children
from tests.proxies.runtimes import (
    OURS,
    PATHS,
    connected,
    events_of,
    run,
    runtime_of_programs,
    started,
)

START_SECONDS = 8
"""A time limit within which a program starts, and says so, also on a busy machine."""


async def test_its_error_is_the_job_s() -> None:
    """The code and message of an ARCP error are the job's; that of others is not shown."""
    async with connected() as client:
        for how, code, message in (
            ("words", "INTERNAL_ERROR", "these are the words"),
            ("code", "BUDGET_EXHAUSTED", "USD budget exhausted"),
            ("input", "INVALID_REQUEST", "the input has no name"),
            ("secret", "INTERNAL_ERROR", "the agent failed; the runtime's log says why"),
        ):
            with pytest.raises(JobFailed) as caught:
                await run(client, "failing", how)
            assert (caught.value.code, caught.value.message) == (code, message)
            assert caught.value.retryable == (code == "INTERNAL_ERROR")


@pytest.mark.logs_error("program lost")
async def test_a_program_that_crashes(caplog: pytest.LogCaptureFixture) -> None:
    """After a crash the client is told that the process ended, and the log has its exit status."""
    async with connected() as client:
        handle = await client.submit("crash", 3)
        assert await events_of(handle) == [("log", {"level": "info", "message": "before"})]
        with pytest.raises(JobFailed) as caught:
            await handle.result()
    assert caught.value.code == InternalError.code
    assert caught.value.message == "the agent's process ended"
    lost = next(record for record in caplog.records if record.getMessage() == "program lost")
    assert vars(lost)["exit_status"] == 3


@pytest.mark.logs_error("program")
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("absent", "cannot be started"),
        ("refuses", "refused the session"),
        ("babbles", "is not ARCP"),
        ("closes", "process ended"),
        ("retracts", "process ended"),
        ("boasts", "process ended"),
    ],
)
async def test_a_program_that_is_not_a_runtime(agent: str, message: str) -> None:
    """A program that is not a runtime fails the job, with a message that shows no secret."""
    async with connected() as client:
        with pytest.raises(JobFailed) as caught:
            await run(client, agent)
    assert caught.value.code == InternalError.code
    assert message in caught.value.message
    assert "secret" not in caught.value.message
    assert caught.value.details == {}


async def test_cancelled_politely() -> None:
    """A cancelled job cancels the program's, passes on its last events, and leaves no process."""
    async with connected() as client:
        handle = await client.submit("patient")
        pids = await started(handle)
        await handle.cancel()
        _, *rest = await events_of(handle)
        assert [body["message"] for _, body in rest] == ["cleaned up"]
        with pytest.raises(JobCancelled):
            await handle.result()
        assert not alive(pids[0])
        await gone(pids)


async def test_cancelled_while_its_events_are_not_read() -> None:
    """A cancelled job passes on all events that were not read yet, and then the last ones."""
    async with connected(Limits(journal_bytes=100_000, tail_bytes=100_000)) as client:
        handle = await client.submit("floods")
        events = handle.events()
        first = await anext(events)  # the program is at work
        await trio.sleep(1.5)  # by then all buffers are full, or about to be
        await handle.cancel()
        messages = [each.body["message"] for each in [first, *[event async for event in events]]]
        said = [message for message in messages if not message.startswith("consumer lag")]
        assert said == ["on" * 50_000] * 500 + ["cleaned up"]
        with pytest.raises(JobCancelled):
            await handle.result()


@pytest.mark.spec("7.4-3")
async def test_a_program_that_ignores_every_end() -> None:
    """A program that ignores its end is killed after the job's grace, with its child processes."""
    async with connected(Limits(cancel_grace_seconds=0.5)) as client:
        handle = await client.submit("stubborn")
        pids = await started(handle)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()
        await gone(pids)


async def test_timed_out() -> None:
    """A job's time limit ends its program."""
    async with connected() as client:
        handle = await client.submit("patient", max_runtime=START_SECONDS)
        pids = await started(handle)
        with pytest.raises(JobTimedOut):
            await handle.result()
        await gone(pids)


async def test_the_runtime_leaves() -> None:
    """A shutdown of the runtime ends all programs, also one that ignores signals."""
    with trio.fail_after(60):
        async with runtime_of_programs() as runtime:
            async with open_pair(runtime, token="tok") as client:
                pids = [
                    pid
                    for agent in ("patient", "stubborn")
                    for pid in await started(await client.submit(agent))
                ]
            begun = trio.current_time()
        assert trio.current_time() - begun < 10
        await gone(pids)


@pytest.mark.parametrize("seconds", [0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7])
async def test_cancelled_at_any_time(seconds: float) -> None:
    """At whatever step a job is cancelled, it ends as cancelled and leaves no process."""
    async with connected() as client:
        handle = await client.submit("patient")
        await trio.sleep(seconds)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()
    # The runtime is over, and so is the agent.
    assert not has_children()


async def test_within_an_agent_of_ones_own() -> None:
    """The agent can be called by other agents, and cancelled, like any async function."""
    runtime = runtime_of_programs()
    patient = stdio_agent(OURS, agent="patient", environment=PATHS)
    waiting = trio.CancelScope()

    @runtime.agent("impatient")
    async def impatient(job: arcp_trio.JobContext) -> arcp_trio.Json:
        with waiting:
            await patient(job)
        return "given up"

    with trio.fail_after(60):
        async with runtime, open_pair(runtime, token="tok") as client:
            handle = await client.submit("impatient")
            pids = await started(handle)
            waiting.cancel()
            assert await handle.result() == "given up"
            await gone(pids)
