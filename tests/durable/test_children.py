"""Delegation by durable jobs: the same child in each run, and its result however old it is."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, JobContext, JobFailed, Json, Limits
from tests.durable.stage import Life, result

LEASE = {"agent.delegate": ["*"]}


async def give(value: Json) -> Json:
    """Return the value."""
    return value


@pytest.mark.parametrize("kind", ["value", "stream", "error"])
async def test_the_end_of_a_child_is_kept(kind: str, autojump_clock: MockClock) -> None:
    """A later run gets the result of a child that ended long ago, by the first run's words."""
    agents, calls = Agents(), list[str]()

    @agents.agent("child", durable=True)
    async def child(job: JobContext) -> Json:
        calls.append(job.id)
        if kind == "error":
            raise JobFailed("it is broken", details={"a": 1})
        if kind == "value":
            return {"a": "value"}
        async with job.stream_result() as out:
            await out.write("a ")
            await out.write("stream")
        return None

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        one = await job.delegate("child")
        await trio.sleep(1_000 if job.run == 1 else 1)
        try:
            return await one.result()
        except JobFailed as error:
            return [error.message, error.details]

    limits = Limits(finished_job_seconds=5, finished_jobs=0)
    async with Life.begin(agents, limits=limits) as life:
        job_id = (await life.peer.submit("agent", lease_request=LEASE))["job_id"]
        for _ in range(10):
            await trio.sleep(10)
            await life.until_quiet()
        left = life.killed()
    async with Life.begin(agents, left, before=life, limits=limits) as second:
        end = await second.peer.until_terminal(job_id)
        expected = {
            "value": {"a": "value"},
            "stream": "a stream",
            "error": ["it is broken", {"a": 1}],
        }
        assert result(end) == expected[kind]
        assert second.told(job_id) == ["delegate child", "resumed 2"]
        await trio.sleep(60)
        assert await second.store.job(calls[0]) is None
    assert len(calls) == 1


async def test_a_child_that_is_not_durable_has_failed(autojump_clock: MockClock) -> None:
    """The parent goes on, and its `result` raises what the restart has made of the child."""
    agents = Agents()

    @agents.agent("child")
    async def child(_: JobContext) -> None:
        await trio.sleep_forever()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        one = await job.delegate("child")
        try:
            return await one.result()
        except JobFailed as error:
            return [error.code, error.retryable]

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent", lease_request=LEASE))["job_id"]
        await trio.sleep(1)
        await life.until_quiet()
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        end = await second.peer.until_terminal(job_id)
        assert result(end) == ["INTERNAL_ERROR", True]


async def test_a_durable_child_of_another_job_is_not(autojump_clock: MockClock) -> None:
    """A delegated job is durable only if its parent is, too."""
    agents = Agents()

    @agents.agent("child", durable=True)
    async def child(_: JobContext) -> None:
        await trio.sleep_forever()

    @agents.agent("agent")
    async def agent(job: JobContext) -> None:
        for _ in range(2):
            await job.delegate("child")
        await trio.sleep_forever()

    async with Life.begin(agents) as life:
        await life.peer.submit("agent", lease_request=LEASE)
        await trio.sleep(1)
        await life.until_quiet()
        left = life.killed()
    async with Life.begin(agents, left, before=life):
        assert not (await left.recover()).unfinished


async def test_a_cancelled_parent_takes_its_children_with_it(autojump_clock: MockClock) -> None:
    """A tree of durable jobs goes on as a tree: a cancel of the top ends all of it, once."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        if job.input:
            await job.delegate("agent", job.input - 1, lease=LEASE)
        await job.log("there")
        await trio.sleep_forever()

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent", 3, lease_request=LEASE))["job_id"]
        await trio.sleep(1)
        await life.until_quiet()
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        await trio.sleep(5)
        await second.peer.send("job.cancel", {"job_id": job_id})
        assert result(await second.peer.until_terminal(job_id)) == "CANCELLED"
        assert second.told(job_id) == ["delegate agent", "there", "resumed 2"]
        assert not (await second.store.recover()).unfinished


async def test_money_is_set_aside_again(autojump_clock: MockClock) -> None:
    """Budgets of a tree are what they were: what children hold, and what was spent."""
    agents = Agents()

    @agents.agent("child", durable=True)
    async def child(job: JobContext) -> Json:
        await job.metric("cost.work", 2, unit="USD")
        await job.sleep(10)
        await job.metric("cost.work", 1, unit="USD")
        return str(job.budget["USD"])

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        await job.metric("cost.plan", 1, unit="USD")
        one = await job.delegate("child", budget={"USD": 5})
        await job.sleep(5)
        refused = ""
        try:
            await job.delegate("child", budget={"USD": 5})
        except Exception as error:  # noqa: BLE001 - the test looks at it
            refused = type(error).__name__
        return [await one.result(), str(job.budget["USD"]), refused]

    lease = {"agent.delegate": ["*"], "cost.budget": ["USD:10"]}
    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent", lease_request=lease))["job_id"]
        await trio.sleep(2)
        await life.until_quiet()
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        end = await second.peer.until_terminal(job_id)
        assert result(end) == ["2", "6", "LeaseSubsetViolation"]
