"""What bounds durable jobs: what they remember, how fast they go on, and how often in vain."""

from __future__ import annotations

import itertools

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, ArcpError, InternalError, JobContext, Json, Limits
from arcp_trio.wire.timestamps import rfc3339
from tests.durable.stage import DurableStore, Life, result


async def text(size: int) -> str:
    """Return a text of this size."""
    return "x" * size


@pytest.mark.parametrize("durable", [True, False])
async def test_what_a_job_remembers_is_bounded(autojump_clock: MockClock, *, durable: bool) -> None:
    """A result past a bound is refused by the limit's name, and nothing else is lost."""
    agents = Agents()

    @agents.agent("keeper", durable=durable)
    async def keeper(job: JobContext) -> Json:
        hit: list[object] = []
        for size in (900, 1_200, 900, 900):
            try:
                await job.step("text", text, size)
            except InternalError as error:
                hit.append(error.details["limit"])
            else:
                hit.append(size)
        return hit

    limits = Limits(memo_bytes=1_000, memos_bytes=2_000)
    async with Life.begin(agents, limits=limits) as life:
        job_id = (await life.peer.submit("keeper"))["job_id"]
        kept = result(await life.peer.until_terminal(job_id))
    assert kept == [900, "memo_bytes", 900, "memos_bytes"]


async def test_jobs_go_on_at_a_pace(autojump_clock: MockClock) -> None:
    """After a restart jobs are begun one after the other; those that wait can be cancelled."""
    agents, begun = Agents(), list[float]()

    @agents.agent("waiter", durable=True)
    async def waiter(job: JobContext) -> None:
        if job.run == 2:
            begun.append(trio.current_time())
        await job.sleep(1_000)

    async with Life.begin(agents) as first:
        jobs = [(await first.peer.submit("waiter"))["job_id"] for _ in range(20)]
        await trio.sleep(1)
        left = first.killed()
    limits = Limits(jobs_begun_per_second=2, jobs=10, jobs_per_principal=10)
    async with Life.begin(agents, left, before=first, limits=limits) as second:
        await second.peer.send("session.list_jobs", {"filter": {"status": ["running"]}})
        listed = await second.peer.expect("session.jobs")
        assert {entry["job_id"] for entry in listed["payload"]["jobs"]} == set(jobs)
        await second.peer.send("job.cancel", {"job_id": jobs[-1]})
        end = await second.peer.until_terminal(jobs[-1])
        assert result(end) == "CANCELLED"
        assert len(begun) < 5
        await trio.sleep(60)
        assert len(begun) == 19
        pauses = [after - before for before, after in itertools.pairwise(begun)]
        assert min(pauses) >= 0.49


async def test_a_job_that_ends_the_process_is_ended(autojump_clock: MockClock) -> None:
    """A job that does not get on in five runs is not begun once more, and says where it was."""
    agents = Agents()

    @agents.agent("deadly", durable=True)
    async def deadly(job: JobContext) -> None:
        await job.step("harmless", text, 1)
        await trio.sleep_forever()

    limits = Limits(runs_without_progress=5)
    async with Life.begin(agents, limits=limits) as life:
        job_id = (await life.peer.submit("deadly"))["job_id"]
        await trio.sleep(1)
        left = life.killed()
    for _ in range(5):
        async with Life.begin(agents, left, before=life, limits=limits) as life:
            await trio.sleep(1)
            left = life.killed()
    async with Life.begin(agents, left, before=life, limits=limits) as last:
        end = await last.peer.until_terminal(job_id)
    assert result(end) == "INTERNAL_ERROR"
    assert end["payload"]["retryable"] is True
    assert end["payload"]["details"] == {"limit": "runs_without_progress", "max": 5}
    assert "its last finished step is 'harmless'" in end["payload"]["message"]
    assert last.told(job_id) == [f"resumed {run}" for run in range(2, 7)]


async def test_a_suspect_goes_on_alone(autojump_clock: MockClock) -> None:
    """Jobs that did not get on in two runs go on one by one, each once the other has waited."""
    agents, begun = Agents(), list[tuple[float, Json]]()

    @agents.agent("slow", durable=True)
    async def slow(job: JobContext) -> None:
        begun.append((trio.current_time(), job.input))
        await trio.sleep(30)
        await job.sleep(10_000)

    store: DurableStore | None = None
    life: Life | None = None
    for _ in range(3):
        begun.clear()
        async with Life.begin(agents, store, before=life) as life:
            if store is None:
                for number in range(3):
                    await life.peer.submit("slow", number)
            await trio.sleep(5)
            store = life.killed()
    begun.clear()
    async with Life.begin(agents, store, before=life):
        await trio.sleep(100)
        times = [at for at, _ in begun]
        assert len(times) == 3
        assert times[1] - times[0] >= 29
        assert times[2] - times[1] >= 29


@pytest.mark.parametrize("vain", ["tool call", "question", "delegation"])
async def test_what_fails_again_is_no_progress(vain: str, autojump_clock: MockClock) -> None:
    """A job that tries in each run what fails, and then ends the process, is ended, too."""
    agents = Agents()

    async def fail() -> None:
        raise ConnectionError

    @agents.agent("deadly", durable=True)
    async def deadly(job: JobContext) -> None:
        try:
            if vain == "tool call":
                await job.call_tool("web", fail)
            elif vain == "question":
                await job.ask("Who?")
            else:
                await job.delegate("nobody")
        except (ArcpError, ConnectionError):
            await trio.sleep_forever()

    limits = Limits(runs_without_progress=3)
    async with Life.begin(agents, limits=limits) as life:
        submitted = await life.peer.submit("deadly", lease_request={"tool.call": ["web"]})
        await trio.sleep(1)
        left = life.killed()
    for _ in range(3):
        async with Life.begin(agents, left, before=life, limits=limits) as life:
            await trio.sleep(1)
            left = life.killed()
    async with Life.begin(agents, left, before=life, limits=limits) as last:
        with trio.fail_after(10):
            end = await last.peer.until_terminal(submitted["job_id"])
    assert result(end) == "INTERNAL_ERROR"


async def deadly(job: JobContext) -> None:
    """Get nowhere."""
    del job
    await trio.sleep_forever()


async def test_others_do_not_wait_for_ever(autojump_clock: MockClock) -> None:
    """A suspect that is only slow holds up the other jobs for minutes, not for hours."""
    agents, begun = Agents(), list[tuple[float, Json]]()

    @agents.agent("slow", durable=True)
    async def slow(job: JobContext) -> None:
        begun.append((trio.current_time(), job.input))
        await trio.sleep_forever()

    store: DurableStore | None = None
    life: Life | None = None
    for _ in range(3):
        begun.clear()
        async with Life.begin(agents, store, before=life) as life:
            for number in range(2) if store is None else ():
                await life.peer.submit("slow", number)
            await trio.sleep(400)
            store = life.killed()
    first, second = begun
    assert 299 < second[0] - first[0] < 301


@pytest.mark.parametrize("limit", ["time", "lease"])
async def test_time_limits_hold_before_a_turn(limit: str, autojump_clock: MockClock) -> None:
    """A job that waits for its turn ends when its time is over, and not later."""
    agents = Agents()
    agents.agent("deadly", durable=True)(deadly)
    left: DurableStore | None = None
    life: Life | None = None
    late = ""
    for _ in range(2):
        async with Life.begin(agents, left, before=life) as life:
            if not late:
                ends = {"expires_at": rfc3339(life.clock.now() + 60)}
                fields: dict[str, Json] = {"lease_constraints": ends}
                if limit == "time":
                    fields = {"max_runtime_sec": 60}
                await life.peer.submit("deadly")
                late = (await life.peer.submit("deadly", **fields))["job_id"]
            await trio.sleep(10)
            left = life.killed()
    async with Life.begin(agents, left, before=life) as last:
        with trio.fail_after(41):
            end = result(await last.peer.until_terminal(late))
    assert end == ("TIMEOUT" if limit == "time" else "LEASE_EXPIRED")


async def test_a_suspension_before_its_turn_counts_for_nothing(autojump_clock: MockClock) -> None:
    """A job that waits for its turn when the runtime ends is as near to its end as before."""
    agents = Agents()
    agents.agent("deadly", durable=True)(deadly)
    limits = Limits(runs_without_progress=3)
    left: DurableStore | None = None
    life: Life | None = None
    jobs: list[str] = []
    for killed in (True, True, False, True, True):
        async with Life.begin(agents, left, before=life, limits=limits) as life:
            if not jobs:
                jobs = [(await life.peer.submit("deadly"))["job_id"] for _ in range(2)]
            await trio.sleep(1)
            left = life.killed() if killed else life.store
    async with Life.begin(agents, left, before=life, limits=limits) as last:
        with trio.fail_after(10):
            assert result(await last.peer.until_terminal(jobs[1])) == "INTERNAL_ERROR"
