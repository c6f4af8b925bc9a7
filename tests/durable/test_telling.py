"""What a later run tells: what was told is passed over, and nothing is lost."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, BudgetExhausted, JobContext, Json, Limits
from tests.durable.stage import Life


async def over_a_kill(
    agents: Agents,
    seconds: float = 5,
    *,
    lease: Json = None,
) -> list[str]:
    """Return what a client is told of a job that is killed after `seconds`."""
    async with Life.begin(agents) as life:
        accepted = await life.peer.submit("agent", lease_request=lease)
        await trio.sleep(seconds)
        await life.until_quiet()
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        await second.peer.until_terminal(accepted["job_id"])
        return second.told(accepted["job_id"])


async def test_every_kind_is_passed_over(autojump_clock: MockClock) -> None:
    """Events outside of steps are told once, in their place; costs count once."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        await job.log("a")
        await job.log("a")
        await job.thought("b")
        await job.status("c", "d")
        await job.progress(1, total=2)
        await job.metric("cost.x", 1, unit="USD")
        await job.artifact("file:///a", "text/plain")
        await job.emit("x-vendor.acme.x", {"a": [1, {"b": None}]})
        async with job.tool_call("shop", {"n": 1}) as call:
            call.result = [1]
        await trio.sleep(10)
        await job.log("a")
        return {each: str(left) for each, left in job.budget.items()}

    lease = {"tool.call": ["*"], "cost.budget": ["USD:5"]}
    told = await over_a_kill(agents, lease=lease)
    first = ["a", "a", "thought", "c", "progress", "cost.x 1", "cost.budget.remaining 4"]
    first += ["artifact_ref", "x-vendor.acme.x", "call shop", "result [1]"]
    assert told == [*first, "resumed 2", "a"]


async def test_what_was_paid_for_is_not_paid_again(autojump_clock: MockClock) -> None:
    """With the budget used up, a later run gets the results that it has, and no others."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async def buy() -> str:
            await job.metric("cost.x", 1, unit="USD")
            return "bought"

        bought = [await job.step("buy", buy), await job.call_tool("shop", buy)]
        await job.sleep(10)
        with pytest.raises(BudgetExhausted):
            await job.step("buy", buy)
        await job.log(" and ".join(bought))

    lease = {"tool.call": ["*"], "cost.budget": ["USD:2"]}
    told = await over_a_kill(agents, lease=lease)
    assert told[-2:] == ["resumed 2", "bought and bought"]
    left = [each for each in told if each.startswith("cost.budget")]
    assert left == ["cost.budget.remaining 1", "cost.budget.remaining 0"]


async def test_the_words_for_a_restart(autojump_clock: MockClock) -> None:
    """One machine has been restarted, and the event says just that."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        await job.sleep(10)

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(5)
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        event = await second.peer.expect("job.event", job_id=job_id)
        assert event["payload"]["body"] == {
            "phase": "resumed",
            "message": "the runtime was restarted",
            "run": 2,
        }


async def test_an_unfinished_step_tells_again(autojump_clock: MockClock) -> None:
    """What was told inside of a step that was interrupted is told again, after `resumed`."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async def done() -> None:
            await job.log("in done")

        async def slow() -> None:
            await job.log("in slow")
            await trio.sleep(10)
            await job.log("still in slow")

        await job.log("out")
        await job.step("done", done)
        await job.step("slow", slow)
        await job.log("out")

    assert await over_a_kill(agents) == [
        *("out", "in done", "in slow", "resumed 2"),
        *("in slow", "still in slow", "out"),
    ]


async def test_a_task_with_something_new_tells_all(autojump_clock: MockClock) -> None:
    """Behind a new step a task tells everything, even what another task has yet to pass over."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async def nothing() -> None: ...

        async def one() -> None:
            await trio.sleep(8 if job.run == 1 else 0)
            await job.step("new", nothing)
            async with trio.open_nursery() as inner:
                inner.start_soon(job.log, "tick")
                await job.log("tock")

        async def other() -> None:
            await trio.sleep(0 if job.run == 1 else 3)
            await job.log("tick")
            await trio.sleep(20)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(other)

    assert await over_a_kill(agents) == ["tick", "resumed 2", "tock", "tick"]


async def test_other_code_loses_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """All events of changed code are told, and a warning names what it does not reach."""
    caplog.set_level(logging.WARNING)
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async def nothing() -> None: ...

        await job.log(f"run {job.run}")
        await job.step(f"step {job.run}", nothing)
        await job.log("same")
        await trio.sleep(10)

    told = await over_a_kill(agents)
    assert told == ["run 1", "same", "resumed 2", "run 2", "same"]
    (warning,) = [each for each in caplog.records if "not reached" in each.getMessage()]
    assert warning.__dict__["agent"] == "agent@1.0.0"
    assert warning.__dict__["place"] == "'step 1'"


async def test_the_inside_of_a_finished_step_is_not_missed(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A later run does not come to the steps inside of a finished one, and no warning says so."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        async def outer() -> Json:
            await job.sleep(1)
            return await job.step("inner", trio.lowlevel.checkpoint)

        await job.step("outer", outer)
        await job.sleep(10)
        return None

    assert await over_a_kill(agents) == ["resumed 2"]
    assert not [each for each in caplog.records if "not reached" in each.getMessage()]


async def test_what_was_trimmed_is_known(autojump_clock: MockClock) -> None:
    """Events and steps are known again also if their part of the journal was given up."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        async def give() -> str:
            return "x" * 100

        for n in range(500):
            await job.step(f"step {n}", give)
            await job.log(f"line {n}")
        await trio.sleep(10)

    limits = Limits(journal_bytes=20_000)
    async with Life.begin(agents, limits=limits) as life:
        accepted = await life.peer.submit("agent")
        await life.until_told(accepted["job_id"], "line 499")
        left = life.killed()
        assert left._tables.journals[accepted["job_id"]].base > 300
    async with Life.begin(agents, left, before=life, limits=limits) as second:
        await second.peer.until_terminal(accepted["job_id"])
        told = second.told(accepted["job_id"])
    assert told == [*(f"line {n}" for n in range(500)), "resumed 2"]
