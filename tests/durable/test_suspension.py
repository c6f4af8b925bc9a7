"""The end of a runtime suspends durable jobs: no terminal, and nothing of a clean-up is kept."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, JobContext, Json
from arcp_trio.testing.frames import TERMINAL
from tests.durable.stage import Life, result


async def give(value: Json) -> Json:
    """Return the value."""
    return value


async def test_a_job_goes_on_after_an_orderly_end(autojump_clock: MockClock) -> None:
    """At the end of the block a durable job is left as it is, and another one ends."""
    agents = Agents()

    @agents.agent("durable", durable=True)
    async def durable(job: JobContext) -> Json:
        await job.log("begin")
        try:
            await trio.sleep(30)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.1)
                await job.log("end")
        return job.run

    @agents.agent("plain")
    async def plain(_: JobContext) -> None:
        await trio.sleep_forever()

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("durable"))["job_id"]
        other = (await life.peer.submit("plain"))["job_id"]
        await life.until_told(job_id, "begin")
        began = trio.current_time()
        await life.runtime.shutdown()
        frames = await life.rest()
    assert trio.current_time() - began < 5
    assert [frame["job_id"] for frame in frames if frame["type"] in TERMINAL] == [other]
    row = await life.store.job(job_id)
    assert row is not None
    assert row.finished_at is None
    async with Life.begin(agents, life.store, before=life) as second:
        assert result(await second.peer.until_terminal(job_id)) == 2
        assert second.told(job_id) == ["begin", "resumed 2", "end"]


@pytest.mark.parametrize("call", ["step", "tool", "sleep", "delegate", "stream", "pause"])
async def test_a_suspension_in_each_call(call: str, autojump_clock: MockClock) -> None:
    """Whatever the agent waits for, the next runtime goes on from there."""
    agents = Agents()

    async def slow(value: Json) -> Json:
        await trio.sleep(5)
        return value

    @agents.agent("child", durable=True)
    async def child(job: JobContext) -> Json:
        return await job.step("slow", slow, "done")

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        await job.log("begin")
        match call:
            case "step":
                got = await job.step("slow", slow, "done")
            case "tool":
                got = await job.call_tool("slow", slow, value="done")
            case "sleep":
                await job.sleep(5)
                got = "done"
            case "delegate":
                got = await (await job.delegate("child")).result()
            case "stream":
                async with job.stream_result() as out:
                    await out.write("a")
                    await trio.sleep(5)
                return None
            case _:
                await trio.sleep(5)
                got = "done"
        await job.log("end")
        return got

    lease = {"tool.call": ["*"], "agent.delegate": ["*"]}
    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent", lease_request=lease))["job_id"]
        await trio.sleep(2)
        await life.until_quiet()
    async with Life.begin(agents, life.store, before=life) as second:
        end = await second.peer.until_terminal(job_id)
        assert end["payload"]["final_status"] == "success"
        told = second.told(job_id)
    if call != "stream":
        assert result(end) == "done"
        assert told.count("begin") == told.count("end") == told.count("resumed 2") == 1
        assert told.count("call slow") == told.count("result done") == (call == "tool")
        assert told.count("delegate child") == (call == "delegate")


async def test_a_function_that_still_returns_is_remembered(autojump_clock: MockClock) -> None:
    """The result of a step, and of a tool call, is taken although the job is suspended."""
    agents, calls = Agents(), list[str]()

    async def stubborn(what: str) -> str:
        calls.append(what)
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return what

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(job.step, "a", stubborn, "a")
            call = job.call_tool
            nursery.start_soon(partial(call, "b", stubborn, what="b"))
        await trio.sleep(10)
        return job.run

    async with Life.begin(agents) as life:
        accepted = await life.peer.submit("agent", lease_request={"tool.call": ["*"]})
        job_id = accepted["job_id"]
        await trio.sleep(0.5)
    async with Life.begin(agents, life.store, before=life) as second:
        end = await second.peer.until_terminal(job_id)
        assert result(end) == 2
    assert sorted(calls) == ["a", "b"]


async def test_what_is_done_while_it_is_cancelled_is_as_if_it_had_not_been(
    autojump_clock: MockClock,
) -> None:
    """Emits, steps, children, returns and errors of a suspended agent are done by the next run."""
    agents, effects = Agents(), list[str]()

    async def effect(what: str) -> None:
        effects.append(what)

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        try:
            await trio.sleep(20)
        except trio.Cancelled:  # noqa: ASYNC104 - the agent behaves badly
            with trio.CancelScope(shield=True):
                await job.log("cleaning up")
                await job.metric("cost.x", 1, unit="USD")
                with pytest.raises(Exception, match="goes on after that"):
                    await job.step("cleanup", effect, "step")
                with pytest.raises(Exception, match="goes on after that"):
                    await job.delegate("agent")
                with pytest.raises(Exception, match="goes on after that"):
                    await job.call_tool("cleanup", effect, what="tool")
            raise KeyError from None  # noqa: ASYNC104
        await job.log("cleaning up")
        await job.step("cleanup", effect, "step")
        return "well"

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(5)
    assert effects == []
    async with Life.begin(agents, life.store, before=life) as second:
        end = await second.peer.until_terminal(job_id)
        assert result(end) == "well"
        assert second.told(job_id) == ["resumed 2", "cleaning up"]
    row = await second.store.job(job_id)
    assert row is not None
    assert row.spent == b"{}"


async def test_suspensions_count_for_nothing(autojump_clock: MockClock) -> None:
    """A job may be suspended more often than it may end the process."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        await trio.sleep(100 if job.run < 12 else 0)
        return job.run

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(1)
    for _ in range(10):
        async with Life.begin(agents, life.store, before=life) as life:
            await trio.sleep(1)
    async with Life.begin(agents, life.store, before=life) as last:
        assert result(await last.peer.until_terminal(job_id)) == 12


async def test_a_cancel_while_it_is_suspended_holds(autojump_clock: MockClock) -> None:
    """A cancel that comes between the suspension and the end is carried out by the next start."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(_: JobContext) -> None:
        try:
            await trio.sleep(100)
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.runtime.shutdown, 5)
            await trio.sleep(0.5)
            await life.peer.send("job.cancel", {"job_id": job_id})
            await life.peer.expect("job.cancelled")
    async with Life.begin(agents, life.store, before=life) as second:
        assert result(await second.peer.until_terminal(job_id)) == "CANCELLED"
        assert second.told(job_id) == []


async def test_clients_find_a_suspended_job_during_the_drain(autojump_clock: MockClock) -> None:
    """While other jobs are drained, it is listed, observed and given for its key, as running."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        await job.log("begin")
        await trio.sleep(1_000 if job.run == 1 else 1)
        return job.run

    @agents.agent("plain")
    async def plain(_: JobContext) -> None:
        await trio.sleep_forever()

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent", idempotency_key="k"))["job_id"]
        await life.peer.submit("plain")
        other = await life.another()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(life.runtime.shutdown, 20)
            await trio.sleep(5)
            await life.peer.send("session.list_jobs", {})
            listed = (await life.peer.expect("session.jobs"))["payload"]["jobs"]
            assert [job["status"] for job in listed] == ["running", "running"]
            assert (await other.submit("agent", idempotency_key="k"))["job_id"] == job_id
            await other.send("job.subscribe", {"job_id": job_id, "history": True})
            resume = other.resume_from()
    async with Life.begin(agents, life.store, before=life) as second:
        assert result(await second.peer.until_terminal(job_id)) == 2
        again = await second.another(resume=resume)
        assert result(await again.until_terminal(job_id)) == 2
