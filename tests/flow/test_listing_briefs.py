"""What a listing of this project tells of a job beyond §6.6."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest

from arcp_trio import (
    Agents,
    ArcpError,
    BudgetExhausted,
    JobContext,
    JobError,
    JobInfo,
    Json,
    Policy,
    Runtime,
    SqliteStore,
    StaticTokens,
)
from arcp_trio.store.interface import Store
from arcp_trio.testing import open_pair

agents = Agents()


@agents.agent("shopper")
async def shopper(job: JobContext) -> None:
    """Spend money in a currency of the budget and in another one."""
    await job.metric("cost.shop", 0.1, unit="USD")
    await job.metric("cost.shop", 0.2, unit="USD")
    with suppress(BudgetExhausted):
        await job.metric("cost.model", 7, unit="tokens")
    await job.metric("speed", 3, unit="USD")
    await job.log("paid\nat \x1b[31monce")


@agents.agent("team")
async def team(job: JobContext) -> None:
    """Have another job spend money."""
    child = await job.delegate("shopper", budget={"USD": "0.50"})
    await child.result()
    await job.status("done")


@agents.agent("failing")
async def failing(job: JobContext) -> None:
    """Fail as the input says."""
    if job.input == "unexpected":
        raise RuntimeError("password 1234")
    raise JobError("no luck\n" + "x" * 500)


def runtime_on(store: Store | None = None) -> Runtime:
    """Return a runtime with these agents, and a principal who observes all jobs."""
    tokens = StaticTokens({"a": "alice", "b": "bob", "o": "observer"})
    runtime = Runtime(auth=tokens, store=store, policy=Policy(observers={"observer"}))
    runtime.add(agents)
    return runtime


async def listed(runtime: Runtime, token: str = "a") -> list[JobInfo]:
    """Return the jobs that a principal may observe, newest first."""
    async with open_pair(runtime, token=token) as client:
        return [info async for info in client.jobs()]


async def run_shopper(runtime: Runtime, token: str = "a") -> None:
    """Run a job that has a budget to its end."""
    async with open_pair(runtime, token=token) as client:
        await (await client.submit("shopper", budget={"USD": "1.00"})).result()


async def test_an_ended_job() -> None:
    """A listing tells whose job it was, when it ran, what it spent of what, and its last event."""
    async with runtime_on() as runtime:
        await run_shopper(runtime)
        (info,) = await listed(runtime)
    assert info.principal == "alice"
    assert info.created_at is not None
    assert info.started_at is not None
    assert info.finished_at is not None
    assert info.created_at <= info.started_at <= info.finished_at
    assert info.budget == {"USD": Decimal("1.00")}
    assert info.spent == {"USD": Decimal("0.3"), "tokens": Decimal(7)}
    assert info.last_event == "paid at once"
    assert (info.error, info.error_code) == (None, None)


async def test_a_running_job() -> None:
    """A job that runs is told of as it is just now."""
    async with runtime_on() as runtime:

        @runtime.agent("waiting")
        async def waiting(job: JobContext) -> None:
            await job.metric("cost.shop", 0.25, unit="USD")
            (info,) = await listed(runtime)
            assert (info.status, info.finished_at) == ("running", None)
            assert info.started_at is not None
            assert info.spent == {"USD": Decimal("0.25")}
            assert info.last_event == "cost.shop 0.25 USD"

        async with open_pair(runtime, token="a") as client:
            await (await client.submit("waiting", budget={"USD": 1})).result()


async def test_how_far_a_job_is() -> None:
    """A job that runs is listed with how far it is; one that has ended is not."""
    async with runtime_on() as runtime:

        @runtime.agent("walker")
        async def walker(job: JobContext) -> None:
            for done, total in ((1, 3), (2, 3), (2.5, None)):
                await job.progress(done, total)
                await job.log("between")
                (info,) = await listed(runtime)
                assert info.progress == (done, total)

        async with open_pair(runtime, token="a") as client:
            await (await client.submit("walker")).result()
        (ended,) = await listed(runtime)
        assert ended.progress is None


async def failed_with(words: str) -> JobInfo:
    """Return what is listed of a job that fails."""
    async with runtime_on() as runtime:
        async with open_pair(runtime, token="a") as client:
            job = await client.submit("failing", words)
            with pytest.raises(ArcpError):
                await job.result()
        (info,) = await listed(runtime)
    return info


async def test_an_error_is_one_line() -> None:
    """The message of an error is told in one line of at most 200 characters."""
    error = (await failed_with("expected")).error
    assert error is not None
    assert error.startswith("no luck xxx")
    assert len(error) == 200


@pytest.mark.logs_error("password 1234")
async def test_an_error_is_what_the_client_may_see() -> None:
    """The text of an unexpected exception is in no listing."""
    info = await failed_with("unexpected")
    assert info.error_code == "INTERNAL_ERROR"
    assert "1234" not in str(info)


async def test_what_a_child_spends_is_its_parents_too() -> None:
    """The parent's spending has the child's, and the child names its parent."""
    async with runtime_on() as runtime:
        async with open_pair(runtime, token="a") as client:
            lease = {"agent.delegate": ["shopper"]}
            await (await client.submit("team", lease=lease, budget={"USD": 2})).result()
        child, parent = await listed(runtime)
    assert child.parent_id == parent.id
    assert child.budget == {"USD": Decimal("0.50")}
    assert parent.spent == child.spent == {"USD": Decimal("0.3"), "tokens": Decimal(7)}
    assert parent.last_event == "done"


async def test_everybodys_for_observers() -> None:
    """An observer is told of everybody's jobs, and whose they are; others of their own."""
    async with runtime_on() as runtime:
        await run_shopper(runtime, "a")
        await run_shopper(runtime, "b")
        assert [info.principal for info in await listed(runtime, "o")] == ["bob", "alice"]
        assert [info.principal for info in await listed(runtime, "b")] == ["bob"]


async def test_after_a_restart(tmp_path: Path) -> None:
    """The next runtime tells the same of a job that has ended."""
    path = tmp_path / "arcp.db"
    async with runtime_on(SqliteStore(path, synchronous="OFF")) as runtime:
        await run_shopper(runtime)
        before = await listed(runtime)
    async with runtime_on(SqliteStore(path, synchronous="OFF")) as runtime:
        assert await listed(runtime) == before


async def test_an_agent_that_names_many_currencies() -> None:
    """Without a budget, spending is counted in a bounded number of currencies."""
    async with runtime_on() as runtime:

        @runtime.agent("spender")
        async def spender(job: JobContext) -> Json:
            await job.metric("cost.x", 1, unit="not a currency")
            for number in range(100):
                await job.metric("cost.x", 1, unit=f"C{number}")
            return None

        async with open_pair(runtime, token="a") as client:
            await (await client.submit("spender")).result()
        (info,) = await listed(runtime)
    assert info.spent is not None
    assert len(info.spent) == 32
    assert info.spent["C31"] == 1
    assert "not a currency" not in info.spent
