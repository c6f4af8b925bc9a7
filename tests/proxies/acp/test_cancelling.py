"""A job that is to end tells its agent, passes on its last words, and leaves no process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import Any

import pytest
import trio

from arcp_trio import JobCancelled, JobFailed, JobHandle, JobTimedOut, Limits
from arcp_trio.testing import open_pair
from tests.processes import alive, gone, has_children
from tests.proxies.acp.stage import SECONDS, begin, command, connected, first_word, runtime_of
from tests.proxies.acp.wire import PairingRecorder

pytestmark = pytest.mark.real_tcp

CALL = {"sessionUpdate": "tool_call", "toolCallId": "c", "kind": "read", "title": "t"}
POLITE: list[Any] = [["pid"], ["on_cancel", ["say", "bye"], ["end", "cancelled"]]]
START_SECONDS = 5
"""A time limit within which a program starts, and says so, also on a busy machine."""


async def said(handle: JobHandle) -> tuple[int, str]:
    """Return the process that a job's agent has told first, and what it said after that."""
    texts = [event.body["data"] async for event in handle.events() if event.kind == "result_chunk"]
    pid = texts[0].removesuffix("bye")
    return int(pid), "".join(texts).removeprefix(pid)


async def test_a_cancel_is_polite() -> None:
    """The agent is told of a cancel, and what it says then is passed on."""
    async with connected() as client:
        handle = await begin(client, *POLITE)
        events = handle.events()
        texts: list[str] = []
        async for event in events:
            if event.kind == "result_chunk":
                texts.append(event.body["data"])
                if len(texts) == 1:
                    await handle.cancel()
        pid = int(texts[0])
        assert texts[1:] == ["bye"]
        with pytest.raises(JobCancelled):
            await handle.result()
        assert not alive(pid)


@pytest.mark.parametrize("answer", ["end_turn", "refusal"])
async def test_whatever_it_answers_the_job_is_cancelled(answer: str) -> None:
    """The end of a job that was cancelled is not changed by what its agent answers."""
    async with connected() as client:
        handle = await begin(client, ["pid"], ["on_cancel", ["end", answer]])
        await first_word(handle)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()


async def test_a_time_limit_is_polite() -> None:
    """At the time limit the agent is told, too, and the job has timed out."""
    async with connected() as client:
        handle = await begin(client, *POLITE, max_runtime=START_SECONDS)
        pid, last = await said(handle)
        assert last == "bye"
        with pytest.raises(JobTimedOut):
            await handle.result()
        assert not alive(pid)


async def test_the_end_of_a_lease_is_polite() -> None:
    """When the lease ends the agent is told, too, and the job has failed by that."""
    async with connected() as client:
        handle = await begin(client, *POLITE, lease={"fs.read": ["/x"]}, expires_in=START_SECONDS)
        pid, last = await said(handle)
        assert last == "bye"
        with pytest.raises(JobFailed) as caught:
            await handle.result()
        assert caught.value.code == "LEASE_EXPIRED"
        assert not alive(pid)


@pytest.mark.parametrize("step", [["ignore"], ["close"]])
async def test_an_agent_that_ignores_a_cancel(
    step: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that ignores its cancel and every signal but the last is gone at the job's end.

    That takes less than the job's grace.
    """
    async with connected(limits=Limits(cancel_grace_seconds=7)) as client:
        handle = await begin(client, ["pid"], ["updates", CALL], step)
        pid = await first_word(handle)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()
        assert not alive(pid)
    assert "cut off" not in caplog.text


async def test_a_shutdown_during_a_cancel() -> None:
    """A job that is being cancelled has no more time at a shutdown than any other."""
    with trio.fail_after(SECONDS):
        async with runtime_of() as runtime:
            async with open_pair(runtime, token="tok", recorder=PairingRecorder()) as client:
                handle = await begin(client, ["pid"], ["ignore"])
                pid = await first_word(handle)
                await handle.cancel()
            begun = trio.current_time()
        # By itself, the job would wait 10 s for its agent, and then some.
        assert trio.current_time() - begun < 9
        await gone([pid])


async def test_a_time_limit_that_is_ignored() -> None:
    """An agent that never answers, whatever it is told, is gone when its job has timed out."""
    async with connected(limits=Limits(cancel_grace_seconds=2)) as client:
        handle = await begin(client, ["pid"], ["ignore"], max_runtime=START_SECONDS)
        pid = await first_word(handle)
        with pytest.raises(JobTimedOut):
            await handle.result()
        await gone([pid])


async def test_a_job_without_grace() -> None:
    """A job that has no grace ends at once, and its calls with it; its process is killed."""
    async with connected(limits=Limits(cancel_grace_seconds=0)) as client:
        handle = await begin(client, ["pid"], ["updates", CALL], ["ignore"])
        pid = await first_word(handle)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()
        await gone([pid])


async def test_cancelled_while_its_client_does_not_read() -> None:
    """A cancelled job passes on all that was said before, also what its client has yet to read."""
    limits = Limits(journal_bytes=100_000, tail_bytes=100_000)
    async with connected(limits=limits) as client:
        handle = await begin(
            client, ["flood", 300, 20_000], ["on_cancel", ["say", "bye"], ["end", "cancelled"]]
        )
        chunks = (
            each.body["data"] async for each in handle.events() if each.kind == "result_chunk"
        )
        text = await anext(chunks)
        await trio.sleep(1.5)
        await handle.cancel()
        text += "".join([each async for each in chunks])
        assert text.endswith("bye")
        numbers = [int(word) for word in text.replace("x", "").removesuffix("bye").split()]
        assert numbers == list(range(300))


@pytest.mark.parametrize(
    "seconds", [0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.13, 0.17, 0.3, 0.6]
)
async def test_cancelled_at_any_time(seconds: float) -> None:
    """At whatever step a job is cancelled, it ends as cancelled and leaves no process."""
    async with connected() as client:
        handle = await begin(
            client,
            *[["updates", {**CALL, "toolCallId": f"c{number}"}] for number in range(20)],
            ["ask", {"kind": "edit"}],
            ["flood", 100, 5_000],
            ["wait"],
        )
        await trio.sleep(seconds)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()
    # The runtime is over, and so is the agent.
    assert not has_children()


async def test_a_runtime_that_leaves() -> None:
    """A shutdown ends all programs in time, also those that are deaf or have not begun."""
    with trio.fail_after(SECONDS):
        agents = {"scripted": command(), "mute": command(silent=["initialize"])}
        async with runtime_of(agents) as runtime:
            async with open_pair(runtime, token="tok", recorder=PairingRecorder()) as client:
                await client.submit("mute", "go")
                handles = [
                    await begin(client, ["pid"], [step]) for step in ("ignore", "close", "wait")
                ]
                pids = [await first_word(handle) for handle in handles]
            begun = trio.current_time()
        assert trio.current_time() - begun < 20
        await gone(pids)
    assert not has_children()


PROGRAM = """
import sys, trio
from tests.proxies.acp.stage import begin, connected, first_word

async def main():
    async with connected() as client:
        handle = await begin(client, ["pid"], [sys.argv[1]])
        print(await first_word(handle), flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_no_program_outlives_the_process_of_its_runtime() -> None:
    """When the runtime's process is killed, the program of its job is gone, too."""
    # Without util-linux, a program that ignores the end of its input lives on.
    step = "ignore" if shutil.which("setpriv") and shutil.which("prlimit") else "wait"
    with trio.fail_after(SECONDS):
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", PROGRAM, step], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        try:
            pid = int(await process.stdout.receive_some())
            assert alive(pid)
        finally:
            process.kill()
            with trio.move_on_after(10, shield=True):
                await process.wait()
                await process.stdout.aclose()
        await gone([pid])
