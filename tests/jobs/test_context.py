"""What a job's context tells its agent, and when what the agent says is sent (§8.1, §8.3)."""

from __future__ import annotations

import random
from contextlib import suppress
from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import ArcpError, JobContext, JobError, Limits, Runtime
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json
from tests.jobs import outside
from tests.jobs.acting import end_of, play, said
from tests.stage import make_runtime


async def test_a_context_tells_about_its_job(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A context has the id, agent, version, input, principal and trace of its job."""

    @runtime.agent("looking", version="7")
    async def looking(job: JobContext) -> Json:
        assert (job.grace, job.limits.frame_bytes_out) == (30, Limits().frame_bytes_out)
        assert job.sends_chunks
        return [job.id, job.agent, job.version, job.input, job.principal, job.trace_id]

    job = await peer.submit("looking@7", {"x": 1})
    end = await peer.until_terminal(job["job_id"])
    result = [job["job_id"], "looking", "7", {"x": 1}, "alice", job["trace_id"]]
    assert end["payload"]["result"] == result


@pytest.mark.spec("8.1-1", "8.2-1", "8.2.1-1")
async def test_each_method_says_its_event(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """Each method emits an event with the fields of §8.2, without those left out."""

    async def act(job: JobContext) -> Json:
        await job.log("hello")
        await job.log("careful", level="warn")
        await job.thought("hm")
        await job.status("working")
        await job.status("working", "hard")
        await job.progress(1)
        await job.progress(0.5, total=2, units="files", message="half")
        await job.progress(3, total=2)
        await job.metric("lines", 5)
        await job.metric("cost.usd", Decimal("0.10"), unit="USD", dimensions={"model": "m"})
        await job.metric("delta", -1.5)
        await job.artifact("file:///a", "text/plain")
        await job.artifact("file:///b", "text/plain", byte_size=0, sha256="ab" * 32)
        return None

    await play(runtime, peer, act)
    assert said(peer) == [
        ("log", {"level": "info", "message": "hello"}),
        ("log", {"level": "warn", "message": "careful"}),
        ("thought", {"text": "hm"}),
        ("status", {"phase": "working"}),
        ("status", {"phase": "working", "message": "hard"}),
        ("progress", {"current": 1}),
        ("progress", {"current": 0.5, "total": 2, "units": "files", "message": "half"}),
        ("progress", {"current": 3, "total": 2}),
        ("metric", {"name": "lines", "value": 5}),
        (
            "metric",
            {"name": "cost.usd", "value": 0.1, "unit": "USD", "dimensions": {"model": "m"}},
        ),
        ("metric", {"name": "delta", "value": -1.5}),
        ("artifact_ref", {"uri": "file:///a", "content_type": "text/plain"}),
        (
            "artifact_ref",
            {
                "uri": "file:///b",
                "content_type": "text/plain",
                "byte_size": 0,
                "sha256": "ab" * 32,
            },
        ),
    ]


async def test_thoughts_are_told_by_the_sentence(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """Tokens of a model are told once a sentence or a line has ended, and the rest at the end."""
    endless = "and on " * 200

    async def act(job: JobContext) -> Json:
        with suppress(ValueError):
            async with job.stream_thought() as out:
                for word in outside.THOUGHTS:
                    await out.write(word)
                raise ValueError
        async with job.stream_thought() as out:
            for letter in endless:
                await out.write(letter)
            await out.flush()
            await out.write(" \n")

    await play(runtime, peer, act)
    thoughts = [body["text"] for kind, body in said(peer) if kind == "thought"]
    assert thoughts[:-2] == outside.SENTENCES
    assert [len(each) for each in thoughts[-2:]] == [1_001, 399]
    assert "".join(thoughts[-2:]) == endless


async def test_a_forgotten_await_is_told(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """Each call that was not awaited is an error in the job's log; others are not named."""
    kept: list[object] = []

    async def act(job: JobContext) -> Json:
        job.metric("cost.x", 1, unit="USD")  # type: ignore[unused-coroutine]
        async with job.stream_result() as out:
            out.write("lost")  # type: ignore[unused-coroutine]
        job.thought("given up").close()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(job.log, "by a task")
            later = job.log("later")
        await later
        kept.append(job.status("kept"))
        return None

    end = await end_of(runtime, peer, act)
    assert end["final_status"] == "success"
    told = [body["message"] for kind, body in said(peer) if kind == "log"]
    assert told == [
        *("by a task", "later"),
        "the agent has called JobContext.metric without await: the call has done nothing",
        "the agent has called ResultStream.write without await: the call has done nothing",
        "the agent has called JobContext.status without await: the call has done nothing",
    ]


async def test_a_forgotten_await_of_an_agent_that_fails(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """It is told beside an exception, which holds on to what the agent had."""

    async def act(job: JobContext) -> Json:
        call = job.log("lost")
        raise JobError(f"no luck with {type(call).__name__}")

    end = await end_of(runtime, peer, act)
    assert end["message"] == "no luck with AwaitedCall"
    (told,) = [body["message"] for kind, body in said(peer) if kind == "log"]
    assert told.startswith("the agent has called JobContext.log without await")


@pytest.mark.spec("6.2-4")
async def test_progress_is_sent_to_those_who_negotiated_it(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Without the feature `progress` its events take no number, and there is no gap."""

    @runtime.agent("busy")
    async def busy(job: JobContext) -> Json:
        for step in range(5):
            await job.progress(step)
            await job.log(f"step {step}")

    for features, count in (((), 5), (("progress",), 10)):
        async with open_peer(runtime) as peer:
            await peer.hello(features=features)
            job = await peer.submit("busy")
            end = await peer.until_terminal(job["job_id"])
            assert end["event_seq"] == count + 1
            assert len(said(peer)) == count


@pytest.mark.spec("8.3-1", "1.0/8.3-3")
async def test_tasks_of_an_agent_emit_in_the_order_of_their_calls(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """Events of several tasks of an agent are sent in the order of the calls."""
    order: list[str] = []

    async def act(job: JobContext) -> Json:
        async def worker(name: str) -> None:
            chance = random.Random(name)
            for number in range(200):
                order.append(f"{name}{number}")
                await job.log(order[-1])
                if chance.random() < 0.2:
                    await trio.sleep(chance.random())

        async with trio.open_nursery() as nursery:
            for name in "abcde":
                nursery.start_soon(worker, name)
        return None

    await play(runtime, peer, act)
    assert len(order) == 1000
    assert [body["message"] for _, body in said(peer)] == order


@pytest.mark.spec("1.0/8.3-3")
async def test_what_was_said_before_the_result_comes_before_it(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A thousand events that are emitted without a pause come before the terminal."""

    async def act(job: JobContext) -> Json:
        for number in range(1000):
            await job.metric("n", number)
        return "done"

    assert await play(runtime, peer, act) == "done"
    assert [body["value"] for _, body in said(peer)] == list(range(1000))


async def test_a_task_that_outlives_the_agent_says_nothing_more(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A task that the agent started elsewhere cannot emit after the job's end."""
    refusals: list[ArcpError] = []

    async with trio.open_nursery() as elsewhere:

        async def chatter(job: JobContext) -> None:
            for number in range(10):
                await trio.sleep(1)
                try:
                    await job.log(f"{number}")
                except ArcpError as error:
                    refusals.append(error)

        async def act(job: JobContext) -> Json:
            elsewhere.start_soon(chatter, job)
            await trio.sleep(3.5)
            return None

        await play(runtime, peer, act)
    assert [body["message"] for _, body in said(peer)] == ["0", "1", "2"]
    assert len(refusals) == 7
    await peer.submit("echo")


@pytest.mark.spec("1.0/7.4-1")
async def test_an_agent_in_a_tight_loop_can_be_cancelled(autojump_clock: MockClock) -> None:
    """Every emitting call is a checkpoint, so a tight loop lets other jobs run."""
    limits = Limits(journal_bytes=100_000)  # past it the agent waits for its client
    async with make_runtime(limits=limits) as runtime, open_peer(runtime) as peer:

        @runtime.agent("talkative")
        async def talkative(job: JobContext) -> Json:
            while True:
                await job.log("and another thing")

        await peer.hello()
        job = await peer.submit("talkative")
        other = await peer.submit("echo", "meanwhile")
        assert (await peer.until_terminal(other["job_id"]))["payload"]["result"] == "meanwhile"
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["code"] == "CANCELLED"


async def test_timestamps_are_of_the_runtimes_clock(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """`ts` goes with the runtime's clock and does not go back."""

    async def act(job: JobContext) -> Json:
        for _ in range(11):
            await job.log("tick")
            await trio.sleep(60)
        return None

    peer.patience = 10_000
    await play(runtime, peer, act)
    times = [frame["payload"]["ts"] for frame in peer.seen if frame["type"] == "job.event"]
    assert times == sorted(times)
    minutes = [int(time[14:16]) for time in times]
    assert (minutes[10] - minutes[0]) % 60 == 10
