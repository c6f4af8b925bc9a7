"""Agents that are programs: what they get, what comes of them, and that nothing of them stays."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

import arcp_trio
from arcp_trio import (
    BudgetExhausted,
    Client,
    InternalError,
    JobCancelled,
    JobFailed,
    JobHandle,
    JobTimedOut,
    Limits,
    Runtime,
    StaticTokens,
    stdio_agent,
)
from arcp_trio.testing import open_pair
from tests.transport.processes import alive, gone, has_children

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OURS = [
    *(sys.executable, "-m", "arcp_trio", "serve", "--stdio", "--memory", "--no-demo-agents"),
    *("--agents", "programs"),
]
PATHS = {"PYTHONPATH": f"{ROOT}:{HERE}"}
PROGRAMS = (
    *("mirror", "talker", "counter", "author", "loud", "patient", "stubborn", "crash", "failing"),
    *("spender", "boss"),
)
MODES = (
    "spends",
    "sloppy",
    "holes",
    "closes",
    "retracts",
    "floods",
    "mumbles",
    "refuses",
    "babbles",
    "several",
)


def awkward(mode: str) -> list[str]:
    """The command of a runtime that is hard to get along with."""
    return [sys.executable, str(HERE / "awkward.py"), mode]


def runtime_of_programs(limits: Limits | None = None) -> Runtime:
    """A runtime whose agents are programs."""
    runtime = Runtime(auth=StaticTokens({"tok": "alice"}), limits=limits)
    for name in PROGRAMS:
        runtime.agent(name, version="1.2.0")(stdio_agent(OURS, environment=PATHS))
    for mode in MODES:
        runtime.agent(mode)(stdio_agent(awkward(mode)))
    runtime.agent("absent")(stdio_agent(["/no/such/program"]))
    runtime.agent("other-name")(stdio_agent(OURS, agent="mirror", environment=PATHS))
    runtime.agent("echo")(stdio_agent([sys.executable, str(HERE / "vendor_program.py")]))
    runtime.agent("sleeper")(stdio_agent([sys.executable, str(HERE / "vendor_program.py")]))
    return runtime


@asynccontextmanager
async def connected(limits: Limits | None = None) -> AsyncGenerator[Client, None]:
    """A client of a runtime whose agents are programs, in real time."""
    runtime = runtime_of_programs(limits)
    with trio.fail_after(60):
        async with runtime, open_pair(runtime, token="tok") as client:
            yield client


async def run(client: Client, agent: str, input_: object = None, **terms: Any) -> Any:
    """Run a job and return its result."""
    return await (await client.submit(agent, input_, **terms)).result()


async def events_of(handle: JobHandle) -> list[tuple[str, Any]]:
    """Its events, up to its end of whichever kind."""
    return [(event.kind, event.body) async for event in handle.events()]


async def started(handle: JobHandle) -> list[int]:
    """Wait for the processes that its first event tells of."""
    async for event in handle.events():
        return [int(word) for word in event.body["message"].split()]
    raise AssertionError("no event")


@pytest.mark.spec("4-2", "11-2")
async def test_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own agent gets the job, its terms and its trace, in a process group of its own."""
    monkeypatch.setenv("ARCP_TOKENS", "alice=secret")
    monkeypatch.setenv("DATABASE_PASSWORD", "secret")
    monkeypatch.setenv("LC_ALL", "C")
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    async with connected() as client:
        handle = await client.submit(
            "mirror",
            {"text": "é漢😀"},
            lease={"tool.call": ["search.*"], "fs.read": ["/ws/**"]},
            budget={"USD": "2.50"},
            expires_in=300,
            max_runtime=100,
            trace_id=trace_id,
        )
        seen: Any = await handle.result()
    assert seen["agent"] == "mirror@1.2.0"
    assert seen["input"] == {"text": "é漢😀"}
    assert seen["lease"] == handle.lease
    assert seen["budget"] == {"USD": "2.50"}
    assert seen["expires_at"] <= str(handle.lease_constraints["expires_at"])
    assert 80 < seen["seconds"] <= 100
    assert seen["trace_id"] == trace_id
    assert seen["group"] == seen["pid"] != os.getpgid(0)
    assert not alive(seen["pid"])

    variables = seen["environment"]
    token = variables["ARCP_TOKEN"]
    assert variables["ARCP_TOKENS"] == f"parent={token}"
    assert len(token) >= 32
    known = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "ARCP_TOKEN", "ARCP_TOKENS", "PYTHONPATH"}
    # What the interpreter sets by itself under that locale is its own.
    assert {name for name in variables if not name.startswith("LC_")} <= known
    assert variables["LC_ALL"] == "C"
    assert "secret" not in str(variables)


async def test_a_token_is_for_one_job() -> None:
    """No two programs have the same token."""
    async with connected() as client:
        first = await run(client, "mirror")
        second = await run(client, "other-name")
    assert first["environment"]["ARCP_TOKEN"] != second["environment"]["ARCP_TOKEN"]
    assert second["agent"] == "mirror@1.2.0"


async def test_what_it_says() -> None:
    """Its events are the job's, of whichever kind, and in order."""
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
    """Their order is the one in which the program has emitted them, and none is missing."""
    async with connected() as client:
        handle = await client.submit("counter", 1_000)
        events = await events_of(handle)
        assert await handle.result() == "done"
    assert [body["message"] for _, body in events] == [str(number) for number in range(1_000)]


async def test_a_big_result() -> None:
    """A streamed result comes as it is, in chunks of lines that any peer takes."""
    async with connected() as client:
        handle = await client.submit("author", 40)
        events = await events_of(handle)
        assert await handle.result() == "x" * 4_000_000
    assert {kind for kind, _ in events} == {"result_chunk"}
    assert max(len(body["data"]) for _, body in events) < 60_000


async def test_what_it_writes(caplog: pytest.LogCaptureFixture) -> None:
    """What would be between its frames, and its standard error, are lines in the log."""
    caplog.set_level(logging.INFO, "arcp_trio.proxies.stdio")
    async with connected() as client:
        assert await run(client, "loud", 7) == 7
    said = [record.getMessage() for record in caplog.records]
    for words in ("printed", "written", "echoed", "last words"):
        assert any(line.startswith(f"program says: {words}") for line in said)
    assert max(map(len, said)) < 10_000
    assert {vars(record)["agent"] for record in caplog.records} == {"loud"}


async def test_a_line_without_an_end(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged in pieces as it comes: it is not kept until there is an end to it."""
    caplog.set_level(logging.INFO)
    async with connected() as client:
        await run(client, "mumbles")
    said = [line for line in caplog.messages if line.startswith("program says: x")]
    assert len(said) > 1
    assert max(map(len, said)) < 9_000


async def test_twenty_at_once() -> None:
    """Programs of several jobs run side by side."""
    results: dict[int, Any] = {}

    async def one(client: Client, number: int) -> None:
        results[number] = await run(client, "mirror", number)

    async with connected() as client, trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, client, number)
    assert {number: result["input"] for number, result in results.items()} == {
        number: number for number in range(20)
    }
    assert len({result["pid"] for result in results.values()}) == 20


# -- failures


async def test_its_error_is_the_jobs() -> None:
    """Its code and its words, where it says them; never what its own runtime keeps back."""
    async with connected() as client:
        for how, code, message in (
            ("words", "INTERNAL_ERROR", "these are the words"),
            ("code", "BUDGET_EXHAUSTED", "USD budget exhausted"),
            ("secret", "INTERNAL_ERROR", "the agent failed"),
        ):
            with pytest.raises(JobFailed) as caught:
                await run(client, "failing", how)
            assert (caught.value.code, caught.value.message) == (code, message)


@pytest.mark.logs_error("program lost")
async def test_it_crashes(caplog: pytest.LogCaptureFixture) -> None:
    """What it said before stays; the client learns that it ended, the log how."""
    async with connected() as client:
        handle = await client.submit("crash", 3)
        assert await events_of(handle) == [("log", {"level": "info", "message": "before"})]
        with pytest.raises(JobFailed) as caught:
            await handle.result()
    assert caught.value.code == InternalError.code
    assert caught.value.message == "the agent's process ended"
    lost = next(record for record in caplog.records if record.getMessage() == "program lost")
    assert vars(lost)["exit_status"] == 3


@pytest.mark.logs_error("program")
@pytest.mark.parametrize(
    ("agent", "message"),
    [
        ("absent", "cannot be started"),
        ("refuses", "refused the session"),
        ("babbles", "is not ARCP"),
        ("closes", "process ended"),
        ("retracts", "process ended"),
    ],
)
async def test_it_is_no_runtime(agent: str, message: str) -> None:
    """Whatever is wrong with the program is the job's failure, in words that tell no secret."""
    async with connected() as client:
        with pytest.raises(JobFailed) as caught:
            await run(client, agent)
    assert caught.value.code == InternalError.code
    assert message in caught.value.message
    assert "secret" not in caught.value.message
    assert caught.value.details == {}


async def test_several_agents_and_none_of_the_name() -> None:
    """It is not guessed which one is meant."""
    async with connected() as client:
        with pytest.raises(JobFailed) as caught:
            await run(client, "several")
    assert "no agent several, but several: one, two" in caught.value.message


async def test_events_that_are_none(caplog: pytest.LogCaptureFixture) -> None:
    """What may not be sent is left out, and secrets of the program's are; the rest goes on."""
    async with connected() as client:
        handle = await client.submit("sloppy")
        assert await events_of(handle) == [("log", {"level": "info", "message": "good"})]
        assert await handle.result() == 1
    assert len(re.findall("event cannot be passed on", caplog.text)) == 1
    assert "secret" not in caplog.text


@pytest.mark.logs_error("failed")
async def test_chunks_that_do_not_fit() -> None:
    """A result with a hole is no success."""
    async with connected() as client:
        with pytest.raises(JobFailed):
            await run(client, "holes")


# -- terms


@pytest.mark.spec("9.6-4")
async def test_its_costs_are_the_jobs() -> None:
    """Each counts once, and the runtime says what is left; at its end the program is refused."""
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
    """What it delegates within itself is told as that, and spent all the same."""
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


async def test_it_minds_no_budget() -> None:
    """A program that goes on spending is ended."""
    async with connected() as client:
        handle = await client.submit("spends", budget={"USD": 3})
        events = await events_of(handle)
        with pytest.raises(JobFailed) as caught:
            await handle.result()
    assert caught.value.code == BudgetExhausted.code
    assert sum(body["name"] == "cost.x" for _, body in events) == 4


@pytest.mark.parametrize(
    ("terms", "feature"),
    [
        ({"budget": {"USD": 1}}, "cost.budget"),
        ({"expires_in": 60}, "lease_expires_at"),
        ({"lease": {"model.use": ["small-*"]}}, "model.use"),
    ],
)
async def test_it_cannot_be_bound(terms: Any, feature: str) -> None:
    """A program that does not know what a job is bound by gets none that is."""
    async with connected() as client:
        with pytest.raises(JobFailed) as caught:
            await run(client, "sloppy", **terms)
    assert f"has no {feature}" in caught.value.message


# -- ends


async def test_cancelled_politely() -> None:
    """Its own job is cancelled first, and what that says still comes; then all of it is gone."""
    async with connected() as client:
        handle = await client.submit("patient")
        pids = await started(handle)
        await handle.cancel()
        assert [body["message"] for _, body in await events_of(handle)] == ["cleaned up"]
        with pytest.raises(JobCancelled):
            await handle.result()
        assert not alive(pids[0])
        await gone(pids)


async def test_cancelled_while_nobody_keeps_up() -> None:
    """What it has said and nobody has read yet still comes, and what it says of its own end."""
    async with connected(Limits(journal_bytes=100_000, tail_bytes=100_000)) as client:
        handle = await client.submit("floods")
        events = handle.events()
        await trio.sleep(1.5)  # everything is full by then, or at least on the way to it
        await handle.cancel()
        messages = [event.body["message"] async for event in events]
        said = [message for message in messages if not message.startswith("consumer lag")]
        assert said == ["on" * 50_000] * 500 + ["cleaned up"]
        with pytest.raises(JobCancelled):
            await handle.result()


@pytest.mark.spec("7.4-3")
async def test_it_does_not_hear() -> None:
    """Once the job's grace is over it is killed, with what it has started, whatever it ignores."""
    async with connected(Limits(cancel_grace_seconds=0.5)) as client:
        handle = await client.submit("stubborn")
        pids = await started(handle)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()
        await gone(pids)


async def test_timed_out() -> None:
    """The job's time is the program's."""
    async with connected() as client:
        handle = await client.submit("patient", max_runtime=1)
        pids = await started(handle)
        with pytest.raises(JobTimedOut):
            await handle.result()
        await gone(pids)


async def test_the_runtime_leaves() -> None:
    """A shutdown leaves no program behind, be it ever so stubborn."""
    with trio.fail_after(60):
        async with runtime_of_programs() as runtime:
            async with open_pair(runtime, token="tok") as client:
                pids = [
                    pid
                    for agent in ("patient", "stubborn")
                    for pid in await started(await client.submit(agent))
                ]
            begun = trio.current_time()
        assert trio.current_time() - begun < 10
        await gone(pids)


@pytest.mark.parametrize("seconds", [0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7])
async def test_cancelled_at_any_time(seconds: float) -> None:
    """Whichever step the job has reached, it ends as cancelled, and no child process stays."""
    async with connected() as client:
        handle = await client.submit("patient")
        await trio.sleep(seconds)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()
    # The runtime is over, and with it the agent.
    assert not has_children()


async def test_within_an_agent_of_ones_own() -> None:
    """It may be called, and given up, like any other async function."""
    runtime = runtime_of_programs()
    patient = stdio_agent(OURS, agent="patient", environment=PATHS)

    @runtime.agent("impatient")
    async def impatient(job: arcp_trio.JobContext) -> arcp_trio.Json:
        with trio.move_on_after(1):
            await patient(job)
        return "given up"

    with trio.fail_after(60):
        async with runtime, open_pair(runtime, token="tok") as client:
            handle = await client.submit("impatient")
            pids = await started(handle)
            assert await handle.result() == "given up"
            await gone(pids)


# -- others


async def test_a_vendors_runtime() -> None:
    """The vendor's Python SDK on its standard streams runs jobs, and their cancellation."""
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


def test_a_command_is_a_list() -> None:
    """One text, or nothing, is a mistake that is told at once."""
    with pytest.raises(TypeError, match="a list"):
        stdio_agent("python agent.py")
    with pytest.raises(ValueError, match="empty"):
        stdio_agent([])
