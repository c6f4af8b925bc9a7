"""Steps: what they return, how they are told apart, and what cannot be one."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, JobContext, Json, Retry
from tests.durable.stage import Life, result

LEASE = {"tool.call": ["*"]}
BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "plain"])


@attrs.frozen
class Page:
    """What cattrs structures."""

    title: str
    fetched: datetime


async def give(value: Json) -> Json:
    """Return the value."""
    return value


async def outcome_of(work: Callable[[JobContext], Awaitable[Json]], *, durable: bool) -> object:
    """Return the result of a job whose agent does this, over a kill in the end if it is durable."""
    agents = Agents()

    @agents.agent("agent", durable=durable)
    async def agent(job: JobContext) -> Json:
        value = await work(job)
        if durable and job.run == 1:
            await trio.sleep(50)
        return value

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent", lease_request=LEASE))["job_id"]
        await trio.sleep(40)
        if not durable:
            return result(await life.peer.until_terminal(job_id))
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        return result(await second.peer.until_terminal(job_id))


@BOTH
async def test_a_step_returns_what_was_stored(autojump_clock: MockClock, *, durable: bool) -> None:
    """A tuple is a list at once, and a type that is named is made again in each run."""
    page = Page("a", datetime(2026, 11, 19, tzinfo=UTC))

    async def work(job: JobContext) -> Json:
        assert await job.step("tuple", give, (1, 2.5, None)) == [1, 2.5, None]
        assert await job.step("page", give, page, returns=Page) == page
        assert await job.step("pages", give, [page], returns=list[Page]) == [page]
        assert await job.step("nothing", give, None) is None
        return "well"

    assert await outcome_of(work, durable=durable) == "well"


@BOTH
async def test_what_is_no_json_is_no_result(autojump_clock: MockClock, *, durable: bool) -> None:
    """Anything else raises TypeError, and the job goes on."""

    async def work(job: JobContext) -> Json:
        for number, value in enumerate((object(), {1, 2}, b"x", float("nan"), {1: 2})):
            with pytest.raises(TypeError, match=f"step 'bad {number}'"):
                await job.step(f"bad {number}", give, value)
        with pytest.raises(TypeError, match="Page"):
            await job.step("page", give, {"title": 1}, returns=Page)
        union: Any = int | None  # not a type to a checker
        assert await job.step("number", give, 7, returns=union) == 7
        with pytest.raises(TypeError, match=r"not a JSON int \| None"):
            await job.step("no number", give, object(), returns=union)
        return "well"

    assert await outcome_of(work, durable=durable) == "well"


@BOTH
async def test_names_may_come_again(autojump_clock: MockClock, *, durable: bool) -> None:
    """Steps of one name in a row are told apart by how often it came, and nested ones by place."""

    async def work(job: JobContext) -> Json:
        async def outer(n: int) -> Json:
            return [await job.step("x/y", give, [n, i]) for i in range(2)]

        first = [await job.step("x/y", give, n) for n in range(3)]
        return [*first, await job.step("x/y", outer, 7), await job.step("x/y", outer, 8)]

    expected = [0, 1, 2, [[7, 0], [7, 1]], [[8, 0], [8, 1]]]
    assert await outcome_of(work, durable=durable) == expected


@BOTH
async def test_tasks_side_by_side_need_names(autojump_clock: MockClock, *, durable: bool) -> None:
    """The second task that comes to a key gets ValueError, whether the first is done or not."""
    errors: list[str] = []

    async def work(job: JobContext) -> Json:
        errors.clear()

        async def one(wait: float) -> None:
            await trio.sleep(wait)
            try:
                await job.step("fetch", trio.sleep, 5)
            except ValueError as error:
                errors.append(str(error))

        async with trio.open_nursery() as nursery:
            for wait in (0, 2, 10):
                nursery.start_soon(one, wait)
        return len(errors)

    assert await outcome_of(work, durable=durable) == 2
    assert all("'fetch'" in error for error in errors)


@BOTH
async def test_tasks_inside_of_steps_do_not_mix(
    autojump_clock: MockClock, *, durable: bool
) -> None:
    """One step around all that a task does gives its steps keys of their own."""

    async def work(job: JobContext) -> Json:
        found: dict[int, Json] = {}

        async def inside(n: int) -> Json:
            return await job.step("fetch", give, n)

        async def one(n: int) -> None:
            found[n] = await job.step(f"task {n}", inside, n)

        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(one, n)
        return [found[n] for n in range(3)]

    assert await outcome_of(work, durable=durable) == [0, 1, 2]


@BOTH
async def test_where_no_step_can_be(autojump_clock: MockClock, *, durable: bool) -> None:
    """A step needs a name, no `tool_call` block around it, and an outer step that goes on."""

    async def work(job: JobContext) -> Json:
        for name in ("", "x" * 201):
            with pytest.raises(ValueError, match="200 characters"):
                await job.step(name, give, 1)
        with pytest.raises(RuntimeError, match="tool_call"):
            async with job.tool_call("shop"):
                await job.step("inside", give, 1)

        async def late() -> None:
            await trio.sleep(1)
            with pytest.raises(RuntimeError, match="'outer', which has ended"):
                await job.step("late", give, 1)

        async with trio.open_nursery() as nursery:

            async def outer() -> None:
                nursery.start_soon(late)

            await job.step("outer", outer)
        return await job.step("behind", give, "well")

    assert await outcome_of(work, durable=durable) == "well"


@BOTH
async def test_a_step_is_tried_again(autojump_clock: MockClock, *, durable: bool) -> None:
    """Errors that `on` names lead to pauses and other calls; the last one is raised."""
    calls: list[float] = []

    async def fail(error: Exception) -> None:
        calls.append(trio.current_time())
        raise error

    async def work(job: JobContext) -> Json:
        if job.run > 1:
            return "well"
        with pytest.raises(ConnectionError):
            await job.step("net", fail, ConnectionError(), retry=Retry(attempts=4, most=3))
        pauses = [round(b - a, 2) for a, b in itertools.pairwise(calls)]
        assert pauses == [1, 2, 3]
        calls.clear()
        with pytest.raises(KeyError):
            await job.step("key", fail, KeyError("x"), retry=Retry())
        assert len(calls) == 1
        return "well"

    assert await outcome_of(work, durable=durable) == "well"


async def test_attempts_count_in_all_runs(autojump_clock: MockClock) -> None:
    """A restart in a pause goes on with the rest of it, and with the attempts that are left."""
    agents, calls = Agents(), list[float]()

    async def fail() -> None:
        calls.append(trio.current_time())
        raise ConnectionError

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        try:
            await job.step("net", fail, retry=Retry(attempts=3, first=20))
        except ConnectionError:
            return [round(at - calls[0]) for at in calls]

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(15)
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        assert result(await second.peer.until_terminal(job_id)) == [0, 20, 60]


async def test_an_error_is_not_kept(autojump_clock: MockClock) -> None:
    """A step that raised is called again by the next run, and one that returned is not."""
    agents, calls = Agents(), list[str]()

    async def fail_once(name: str) -> str:
        calls.append(name)
        if calls.count(name) == 1 and name == "b":
            raise KeyError(name)
        return name

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        got = [await job.step("a", fail_once, "a")]
        try:
            got.append(await job.step("b", fail_once, "b"))
        except KeyError:
            await trio.sleep(50)
        return got

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(1)
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        assert result(await second.peer.until_terminal(job_id)) == ["a", "b"]
    assert calls == ["a", "b", "b"]
