"""Agents that are processes: what they say comes in order, and each of their ends is noticed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from arcp_trio import acp
from tests.acp.stage import text
from tests.processes import alive, gone

PATIENT = acp.Limits(leave_seconds=20)
"""For ends whose reasons have to be found out, however slow the machine is."""
AGENT = [sys.executable, str(Path(__file__).with_name("scripted_agent.py"))]

pytestmark = pytest.mark.real_tcp


def steps(*each: list[object]) -> str:
    """Return a prompt."""
    return json.dumps(each)


async def test_slow_handlers_finish_in_order() -> None:
    """Five updates whose handlers take less and less time are handled one after the other."""
    begun: list[str] = []
    done: list[str] = []

    async def slow(session: acp.Session, update: acp.Update) -> None:
        assert isinstance(update, acp.Chunk)
        begun.append(update.text)
        await trio.sleep([0.15, 0.12, 0.09, 0.06, 0.03, 0][len(begun) - 1])
        done.append(update.text)

    with trio.fail_after(60):
        async with acp.spawn(AGENT, on_update=slow) as agent:
            session = await agent.new_session("/")
            assert await session.prompt(steps(["burst", 5])) == "end_turn"
            assert begun[:5] == done[:5] == ["0", "1", "2", "3", "4"]


@asynccontextmanager
async def started(*args: str, **options: Any) -> AsyncGenerator[acp.Session, None]:
    """Start the agent, and begin a session."""
    with trio.fail_after(60):
        options = {"limits": PATIENT, **options}
        async with acp.spawn([*AGENT, *args], **options) as agent:
            yield await agent.new_session("/")


async def test_a_decision_is_answered() -> None:
    """A handler of permissions reaches the agent, which goes on."""

    async def decide(request: acp.PermissionRequest) -> None:
        if request.tool.raw.get("kind") == "read":
            request.allow_once()
        else:
            request.refuse()

    async with started(permission=decide) as session:
        turn = session.prompt(steps(["ask", "read"], ["ask", "edit"]))
        answers = [json.loads(text(item)) async for item in turn]
        assert [each["outcome"]["optionId"] for each in answers] == [
            "o-allow_once",
            "o-reject_once",
        ]


@pytest.mark.parametrize(
    ("step", "status", "words"),
    [
        (["exit", 3], 3, "has exited with status 3"),
        (["exit", 0], 0, "has exited with status 0"),
        (["signal", signal.SIGKILL], -signal.SIGKILL, "was ended by SIGKILL"),
    ],
)
async def test_an_agent_that_dies(step: list[object], status: int, words: str) -> None:
    """A turn of an agent that dies has what it said, and fails with the status of its end."""
    async with started() as session:
        turn = session.prompt(steps(["say", "a", "b"], step))
        assert [text(await anext(turn)), text(await anext(turn))] == ["a", "b"]
        with pytest.raises(acp.AgentGone, match=words) as caught:
            await turn
        assert caught.value.exit_status == status


async def test_an_agent_that_does_not_start() -> None:
    """A program that is missing, or ends at once, is an error that says why, and not a group."""
    with pytest.raises(FileNotFoundError, match="no-such-agent"):
        async with acp.spawn(["no-such-agent"]):
            raise AssertionError
    script = "import sys; sys.exit('configuration is missing')"
    with pytest.raises(acp.AgentGone, match=r"status 1: configuration is missing") as caught:
        async with acp.spawn([sys.executable, "-c", script], limits=PATIENT):
            raise AssertionError
    assert caught.value.exit_status == 1
    with pytest.raises(TypeError, match="list"):
        async with acp.spawn("opencode acp"):
            raise AssertionError


async def test_an_agent_that_is_something_else() -> None:
    """A program that writes other lines for ever is found out; its memory is not taken up."""
    script = "while True: print('x' * 1000)"
    with trio.fail_after(60), pytest.raises(acp.NotAcp, match="does not speak ACP"):
        async with acp.spawn([sys.executable, "-c", script]):
            raise AssertionError


async def test_a_line_that_is_too_long() -> None:
    """A line of 100 MB is not kept: the memory of this process grows by much less."""
    tracemalloc.start()
    try:
        async with started() as session:
            turn = session.prompt(steps(["garbage", 100, 1_000_000, ""]))
            with pytest.raises(acp.NotAcp, match="more than 33554432 bytes"):
                await turn
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 96 * 1024 * 1024


async def test_an_agent_that_closes_its_output_and_lives() -> None:
    """An agent that can say nothing more is gone, and is ended with the block."""
    limits = acp.Limits(leave_seconds=0.5)
    async with started(limits=limits) as session:
        with pytest.raises(acp.AgentGone, match="has not exited") as caught:
            await session.prompt(steps(["close"]))
        assert caught.value.exit_status is None


async def test_an_agent_that_does_not_want_to_end() -> None:
    """An agent that ignores the end of its input and SIGTERM is killed."""
    limits = acp.Limits(leave_seconds=0.2, terminate_seconds=0.2)
    async with started(limits=limits) as session:
        turn = session.prompt(steps(["stubborn"]))
        pid = int(text(await anext(turn)))
        assert alive(pid)
    await gone([pid])


@pytest.mark.parametrize("detached", [False, True], ids=["in the group", "detached"])
async def test_what_an_agent_leaves_behind(detached: bool) -> None:  # noqa: FBT001
    """A process that an agent has left holding its output does not delay the agent's end.

    What the agent said before is seen. The process is ended with the block if it is in the agent's
    process group; one that has left the group lives on.
    """
    limits = acp.Limits(leave_seconds=0.5)
    async with started(limits=limits) as session:
        turn = session.prompt(steps(["leave", detached]))
        pid = int(text(await anext(turn)))
        with pytest.raises(acp.AgentGone, match="exited with status 5"):
            await turn
        assert alive(pid)
    if detached:
        assert alive(pid)
        os.kill(pid, signal.SIGKILL)
    await gone([pid])


def test_other_loops_are_refused() -> None:
    """Under asyncio, the first call says that Trio is needed."""

    async def main() -> None:
        async with acp.spawn(AGENT):
            raise AssertionError

    with pytest.raises(RuntimeError, match="Trio"):
        asyncio.run(main())


async def test_standard_error() -> None:
    """Standard error is read, in pieces of bounded size, and its last line explains an end."""
    said: list[str] = []
    async with started(on_stderr=said.append) as session:
        turn = session.prompt(steps(["errors", 64, 1_000_000], ["exit", 1]))
        with pytest.raises(acp.AgentGone, match="status 1: the last words"):
            await turn
    assert said[-1] == "the last words"
    assert max(map(len, said)) < 100_000


async def test_standard_error_that_nobody_reads() -> None:
    """Much on standard error, without a handler for it, does not hold the agent up."""
    async with started() as session:
        assert await session.prompt(steps(["errors", 64, 1_000_000])) == "end_turn"


@pytest.mark.logs_error("handler of standard error failed")
async def test_a_failing_handler_of_standard_error() -> None:
    """A handler of standard error that raises is logged, and costs nothing else."""

    def fail(line: str) -> None:
        raise LookupError("of the program's")

    async with started(on_stderr=fail) as session:
        assert await session.prompt(steps(["errors", 1, 10])) == "end_turn"


async def test_a_flood_through_a_pipe() -> None:
    """Twenty thousand updates to a program that was deaf for a while: all of them, in order."""
    async with started() as session:
        turn = session.prompt(steps(["flood", 20_000, 500], ["say", "the end"]))
        await trio.sleep(2)
        count, last = 0, ""
        async for item in turn:
            count, last = count + 1, text(item)
        assert (count, last) == (20_001, "the end")


async def test_cancelling_a_process() -> None:
    """An agent that waits is told of a cancel, and ends its turn."""
    async with started() as session:
        turn = session.prompt(steps(["say", "a"], ["wait"]))
        assert text(await anext(turn)) == "a"
        await turn.cancel()
        assert turn.stop_reason == "cancelled"


async def test_where_the_agent_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent gets the variables that say where and for whom it runs, and no others."""
    monkeypatch.setenv("ARCP_TOKEN", "secret")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("LC_TIME", "C")
    async with started(cwd=tmp_path) as session:
        (item,) = [item async for item in session.prompt(steps(["environment"]))]
        variables = json.loads(text(item))
        assert variables["TERM"] == "dumb"
        assert variables["LC_TIME"] == "C"
        assert "ARCP_TOKEN" not in variables
        assert variables["cwd"] == str(tmp_path)
    async with started(environment={"ONLY": "1"}) as session:
        (item,) = [item async for item in session.prompt(steps(["environment"]))]
        assert set(json.loads(text(item))) - {"LC_CTYPE", "cwd"} == {"ONLY"}
