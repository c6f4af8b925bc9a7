"""What comes back from a program: events, results, costs, and its standard error."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import pytest
import trio

from arcp_trio import (
    BudgetExhausted,
    JobCancelled,
    JobFailed,
)
from tests.processes import gone
from tests.proxies.runtimes import (
    connected,
    events_of,
    run,
    started,
)


async def test_its_events_are_the_job_s() -> None:
    """The program's events become the job's, whatever their kind, in order."""
    async with connected() as client:
        handle = await client.submit("talker", lease={"tool.call": ["search.*"]})
        events = await events_of(handle)
        assert await handle.result() is None
    kinds = [kind for kind, _ in events]
    assert kinds == [
        *("status", "log", "thought", "tool_call", "tool_result", "progress", "metric"),
        *("artifact_ref", "x-vendor.tests.note"),
    ]
    assert events[1] == ("log", {"level": "warn", "message": "a line"})
    assert events[2] == ("thought", {"text": "é漢😀"})
    assert events[3][1]["call_id"] == events[4][1]["call_id"]


async def test_a_thousand_events() -> None:
    """A thousand events come in order, and none is missing."""
    async with connected() as client:
        handle = await client.submit("counter", 1_000)
        events = await events_of(handle)
        assert await handle.result() == "done"
    assert [body["message"] for _, body in events] == [str(number) for number in range(1_000)]


async def test_a_big_result() -> None:
    """A streamed result is passed on in chunks that any peer can read."""
    async with connected() as client:
        handle = await client.submit("author", 40)
        events = await events_of(handle)
        assert await handle.result() == "x" * 4_000_000
    assert {kind for kind, _ in events} == {"result_chunk"}
    assert max(len(body["data"]) for _, body in events) < 60_000


async def test_a_result_that_is_written_slowly(tmp_path: Path) -> None:
    """What a program streams with pauses comes as it is written, and not at the end."""
    came: list[str] = []
    async with connected() as client:
        handle = await client.submit("teller", str(tmp_path))
        async for event in handle.events():
            (tmp_path / str(len(came))).touch()  # the program waits for it
            came.append(event.body["data"])
        assert await handle.result() == "word 0 word 1 word 2 word 3 "
    assert came == ["word 0 ", "word 1 ", "word 2 ", "word 3 ", ""]


async def test_what_it_writes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Standard error and stray output of a program, and of its children, are lines in the log."""
    caplog.set_level(logging.INFO, "arcp_trio.proxies.stdio")
    async with connected() as client:
        assert await run(client, "loud", 7) == 7
    said = [record.getMessage() for record in caplog.records]
    for words in ("printed", "written", "echoed", "last words"):
        assert any(line.startswith(f"program says: {words}") for line in said)
    assert max(map(len, said)) < 10_000
    assert {vars(record)["agent"] for record in caplog.records} == {"loud"}


async def test_a_line_without_an_end(caplog: pytest.LogCaptureFixture) -> None:
    """A line without an end is logged in pieces as it comes, and not kept in memory."""
    caplog.set_level(logging.INFO)
    async with connected() as client:
        await run(client, "mumbles")
    said = [line for line in caplog.messages if line.startswith("program says: x")]
    assert len(said) > 1
    assert max(map(len, said)) < 9_000


async def test_twenty_at_once(tmp_path: Path) -> None:
    """Programs of twenty jobs run at the same time: each waits until all of them have come."""
    async with connected() as client, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(run, client, "meets", [str(tmp_path), str(number), 20])
    assert set(os.listdir(tmp_path)) == {str(number) for number in range(20)}  # noqa: PTH208


async def test_invalid_events_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Invalid events and secrets of the program are left out, and the others are passed on."""
    async with connected() as client:
        handle = await client.submit("sloppy")
        assert await events_of(handle) == [("log", {"level": "info", "message": "good"})]
        assert await handle.result() == 1
    assert len(re.findall("event cannot be passed on", caplog.text)) == 1
    assert "secret" not in caplog.text


@pytest.mark.logs_error("failed")
async def test_chunks_that_do_not_fit() -> None:
    """A streamed result that lacks a chunk fails the job."""
    async with connected() as client:
        with pytest.raises(JobFailed):
            await run(client, "holes")


@pytest.mark.spec("9.6-4")
async def test_its_costs_are_the_job_s() -> None:
    """Each cost counts once, and a program whose budget is used up is refused."""
    async with connected() as client:
        handle = await client.submit(
            "spender", [0.5] * 9, lease={"tool.call": ["shop.*"]}, budget={"USD": 2}
        )
        events = await events_of(handle)
        with pytest.raises(JobFailed) as caught:
            await handle.result()
    assert caught.value.code == BudgetExhausted.code
    told = [(body["name"], float(body["value"])) for _, body in events]
    assert told == [
        entry
        for left in (1.5, 1.0, 0.5, 0.0)
        for entry in (("cost.shopping", 0.5), ("cost.budget.remaining", left))
    ]


async def test_costs_of_its_own_children() -> None:
    """The costs of jobs that a program delegates within itself are charged to the job."""
    async with connected() as client:
        handle = await client.submit(
            "boss",
            [1, 2],
            lease={"tool.call": ["shop.*"], "agent.delegate": ["*"]},
            budget={"USD": 10},
        )
        events = await events_of(handle)
        assert await handle.result() == "bought"
    assert events[0][0] == "x-vendor.arcp-trio.delegate"
    told = [(body["name"], float(body["value"])) for kind, body in events if kind == "metric"]
    assert told == [
        ("cost.delegated", 1),
        ("cost.budget.remaining", 9),
        ("cost.delegated", 2),
        ("cost.budget.remaining", 7),
    ]


async def test_a_program_that_ignores_its_budget() -> None:
    """A program that goes on spending after its budget is used up is ended."""
    async with connected() as client:
        handle = await client.submit("spends", budget={"USD": 3})
        events = await events_of(handle)
        with pytest.raises(JobFailed) as caught:
            await handle.result()
    assert caught.value.code == BudgetExhausted.code
    assert sum(body["name"] == "cost.x" for _, body in events) == 4


async def test_a_vendor_s_runtime() -> None:
    """A runtime of the vendor's Python SDK does jobs, and can be cancelled."""
    async with connected() as client:
        handle = await client.submit("echo", {"text": "é漢😀"})
        assert [body["message"] for _, body in await events_of(handle)] == ["echo started"]
        assert await handle.result() == {"echoed": {"text": "é漢😀"}}
        assert await run(client, "echo", "x" * 50_000) == {"echoed": "x" * 50_000}
        long = await client.submit("sleeper")
        pids = await started(long)
        await long.cancel()
        with pytest.raises(JobCancelled):
            await long.result()
        await gone(pids)
