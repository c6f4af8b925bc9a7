"""Ends of durable jobs: cancels, limits of time, expiries, and agents that are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    Agents,
    ArcpError,
    JobContext,
    Json,
    Runtime,
    SqliteStore,
    StaticTokens,
)
from arcp_trio.testing import open_pair
from arcp_trio.wire.timestamps import rfc3339
from tests.durable.stage import DurableStore, Life, result


async def nothing(_: JobContext) -> None:
    """Do nothing."""


def sleeper(calls: list[int]) -> Agents:
    """Return an agent that sleeps for long and notes its runs."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        calls.append(job.run)
        await job.log("begin")
        await job.sleep(1_000)
        return job.run

    return agents


async def begun(agents: Agents, **submit: Json) -> tuple[Life, str]:
    """Return a life in which a job runs that is killed soon after its begin, and the job's id."""
    async with Life.begin(agents) as life:
        if "expires_in" in submit:
            ends = life.clock.now() + submit.pop("expires_in")
            submit["lease_constraints"] = {"expires_at": rfc3339(ends)}
        job_id = (await life.peer.submit("agent", **submit))["job_id"]
        await life.until_told(job_id, "begin")
        left = life.killed()
    life.store = left
    return life, job_id


async def test_a_cancel_holds(autojump_clock: MockClock) -> None:
    """A job that was cancelled before the kill is not called again."""
    calls: list[int] = []
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        calls.append(job.run)
        with trio.CancelScope(shield=True):
            await trio.sleep(10)

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await life.peer.send("job.cancel", {"job_id": job_id, "reason": "enough"})
        await life.peer.expect("job.cancelled")
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        end = await second.peer.until_terminal(job_id)
        assert (result(end), end["payload"]["message"]) == ("CANCELLED", "enough")
        assert second.told(job_id) == []
    assert calls == [1]


@pytest.mark.parametrize(
    ("submit", "code"),
    [
        ({"max_runtime_sec": 50}, "TIMEOUT"),
        ({"expires_in": 50}, "LEASE_EXPIRED"),
        ({"expires_in": 50, "max_runtime_sec": 60}, "LEASE_EXPIRED"),
        ({"expires_in": 60, "max_runtime_sec": 50}, "TIMEOUT"),
    ],
)
@pytest.mark.parametrize("down", [0, 40, 70])
async def test_time_goes_on_while_no_runtime_runs(
    submit: dict[str, Json], code: str, down: float, autojump_clock: MockClock
) -> None:
    """Limits of time count from the first run on; a job past one is not called again."""
    calls: list[int] = []
    agents = sleeper(calls)
    life, job_id = await begun(agents, **dict(submit))
    started = trio.current_time()
    await trio.sleep(down)
    async with Life.begin(agents, life.store, before=life) as second:
        assert result(await second.peer.until_terminal(job_id)) == code
        assert trio.current_time() - started == pytest.approx(max(50, down), abs=2)
        resumed = [] if down > 60 else ["resumed 2"]
        assert second.told(job_id) == ["begin", *resumed]
    assert calls == [1, 2][: 1 + len(resumed)]


async def test_an_agent_that_is_gone(autojump_clock: MockClock) -> None:
    """Without its agent, or its version, a job ends as a submit does; and else it is lost."""
    nobody, other, plain = Agents(), Agents(), Agents()
    other.agent("agent", version="2.0.0", durable=True)(nothing)
    plain.agent("agent")(nothing)
    cases = [
        (nobody, "AGENT_NOT_AVAILABLE"),
        (other, "AGENT_VERSION_NOT_AVAILABLE"),
        (plain, "INTERNAL_ERROR"),
    ]
    for agents, code in cases:
        life, job_id = await begun(sleeper([]))
        async with Life.begin(agents, life.store, before=life) as second:
            assert result(await second.peer.until_terminal(job_id)) == code
            assert second.told(job_id) == ["begin"]


async def test_a_key_gives_the_same_job(autojump_clock: MockClock) -> None:
    """A key stands for its suspended job, however old it is."""
    agents = sleeper([])
    life, job_id = await begun(agents, idempotency_key="k")
    for _ in range(3):
        await trio.sleep(80_000)
    async with Life.begin(agents, life.store, before=life) as second:
        await trio.sleep(20)
        assert (await second.peer.submit("agent", idempotency_key="k"))["job_id"] == job_id
        other = await second.another()
        assert (await other.submit("agent", idempotency_key="k"))["job_id"] == job_id
        assert result(await second.peer.until_terminal(job_id)) == 2


@pytest.mark.parametrize(
    ("end", "code"),
    [("cancel", "CANCELLED"), ("limit", "TIMEOUT"), ("lease", "LEASE_EXPIRED")],
)
async def test_a_step_races_an_end(end: str, code: str, autojump_clock: MockClock) -> None:
    """A result that comes after the end is decided is not remembered, and does no harm."""
    agents, errors = Agents(), list[str]()

    async def shielded() -> int:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return 1

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> None:
        await job.log("begin")
        try:
            await job.step("late", shielded)
        except ArcpError as error:
            errors.append(error.code)
            raise

    async with Life.begin(agents) as life:
        submit: dict[str, Json] = {"max_runtime_sec": 2} if end == "limit" else {}
        if end == "lease":
            submit["lease_constraints"] = {"expires_at": rfc3339(life.clock.now() + 2)}
        job_id = (await life.peer.submit("agent", **submit))["job_id"]
        await life.until_told(job_id, "begin")
        if end == "cancel":
            await life.peer.send("job.cancel", {"job_id": job_id})
        assert result(await life.peer.until_terminal(job_id)) == code
        assert await life.store.memos(job_id) == []
    assert errors == [code]


async def test_a_store_that_is_not_durable(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Over such a store the log says so at the start, and jobs end as all others do."""

    class Forgetful(DurableStore):
        durable = False

    agents = sleeper([])
    async with Life.begin(agents, Forgetful()) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await life.until_told(job_id, "begin")
        left = life.killed()
    assert any("not durable" in each.getMessage() for each in caplog.records)
    async with Life.begin(agents, left, before=life) as second:
        assert result(await second.peer.until_terminal(job_id)) == "INTERNAL_ERROR"


@pytest.mark.parametrize("synchronous", ["NORMAL", "OFF"])
async def test_a_file_that_is_not_synced(
    synchronous: Literal["NORMAL", "OFF"], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A store that a loss of power may harm outlasts the process, and so do the jobs in it."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        if job.run == 1:
            await job.step("once", trio.lowlevel.checkpoint)
            await job.log("asleep")
            await trio.sleep_forever()
        return job.run

    for run in (1, 2):
        store = SqliteStore(tmp_path / "db", synchronous=synchronous)
        runtime = Runtime(auth=StaticTokens({"test": "alice"}), store=store)
        runtime.add(agents)
        async with runtime, open_pair(runtime, token="test") as client:
            job = await client.submit("agent", idempotency_key="the one")
            if run == 1:
                await anext(aiter(job.events()))
            else:
                assert await job.result() == 2
    assert not any("not durable" in each.getMessage() for each in caplog.records)
