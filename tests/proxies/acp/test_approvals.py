"""What an agent asks for and the lease allows if a person agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arcp_trio import Client, JobCancelled, JobHandle, JobNotFound, Limits, Question
from arcp_trio.testing.frames import Frame
from tests.proxies.acp.asking import (
    ALLOWED,
    ASK,
    CANCELLED,
    REFUSED,
    asked_in,
)
from tests.proxies.acp.stage import begin, connected, told

pytestmark = pytest.mark.real_tcp

THINK = ["ask", {"kind": "think", "title": "harmless"}]


def may_ask(**patterns: str) -> dict[str, list[str]]:
    """Return a lease that allows these on condition."""
    return {f"{ASK}{name.replace('_', '.')}": [pattern] for name, pattern in patterns.items()}


async def next_question(handle: JobHandle) -> Question:
    """Return the next open question of a job."""
    async for question in handle.questions():
        return question
    raise AssertionError("the job has ended without a question")


def decisions(client: Client, *answers: tuple[str, dict[str, Any]]) -> list[Question]:
    """Answer questions in their order, and return those that were asked."""
    seen: list[Question] = []

    @client.on_question
    async def decide(question: Question) -> None:
        seen.append(question)
        value, more = answers[len(seen) - 1]
        await question.answer(value, **more)

    return seen


async def test_an_approved_write(tmp_path: Path) -> None:
    """A person sees path and tool, agrees, and the file is written; who it was is told."""
    path = str(tmp_path / "file")
    async with connected() as client:
        seen = decisions(client, ("allow", {"reason": "fine"}))
        lease = may_ask(fs_write=f"{tmp_path}/**")
        handle = await begin(client, ["write", path, "approved"], lease=lease)
        done = await asked_in(handle)
    assert done.answers == [{}]
    assert done.results == [{"bytes": 8, "decision": "allow", "by": "alice", "reason": "fine"}]
    assert (tmp_path / "file").read_text() == "approved"
    (question,) = seen
    assert (question.kind, question.capability, question.targets) == (
        *("approval", "fs.write"),
        [path],
    )
    assert (question.tool, question.args) == ("fs/write_text_file", {"path": path})
    kinds = [kind for kind, _ in done.events]
    assert kinds == ["tool_call", "status", "x-vendor.arcp-trio.question", "tool_result"]
    bodies = [body for _, body in done.events]
    assert bodies[2]["question_id"] == bodies[0]["call_id"] == bodies[3]["call_id"]


async def test_a_denied_permission() -> None:
    """A denial is a refusal for the agent; the prompt has our words, never the agent's title."""
    async with connected() as client:
        seen = decisions(client, ("deny", {}))
        handle = await begin(client, THINK, lease=may_ask(tool_call="acp/*"))
        done = await asked_in(handle)
    assert done.answers == [REFUSED]
    (result,) = [body for kind, body in done.events if kind == "tool_result"]
    assert result["error"]["code"] == "PERMISSION_DENIED"
    assert result["error"]["details"] == {"decision": "deny", "by": "alice"}
    assert seen[0].prompt == "Allow tool.call of acp/think?"
    assert seen[0].options == ["allow", "deny"]


async def test_the_agent_goes_on_meanwhile(tmp_path: Path) -> None:
    """While a person thinks, the agent's other words and requests are passed on."""
    (tmp_path / "file").write_text("here")
    lease = {**may_ask(tool_call="acp/*"), "fs.read": [f"{tmp_path}/**"]}
    permission: Frame = {"toolCall": {"toolCallId": "p", "kind": "think"}, "options": []}
    permission["options"] = [{"optionId": "y", "kind": "allow_once", "name": "yes"}]
    async with connected() as client:
        handle = await begin(
            client,
            ["send", "session/request_permission", permission],
            ["read", str(tmp_path / "file")],
            ["wait"],
            lease=lease,
        )
        async for event in handle.events():
            if event.kind == "result_chunk":
                assert event.body["data"] == '{"content": "here"}'
                break
        question = await next_question(handle)
        await question.answer("allow")
        await handle.cancel()


async def test_once_and_for_the_job() -> None:
    """Once is once; for the job, nobody is asked for the same again."""
    async with connected() as client:
        once: tuple[str, dict[str, Any]] = ("allow", {})
        seen = decisions(client, once, once, ("allow", {"scope": "job"}))
        handle = await begin(client, *[THINK] * 5, lease=may_ask(tool_call="acp/*"))
        done = await asked_in(handle)
    assert done.answers == [ALLOWED] * 5
    assert len(seen) == 3
    assert [each.get("by") for each in done.results] == ["alice"] * 3 + [None] * 2


async def test_nobody_decides_in_time() -> None:
    """A time-out is a refusal for the agent, and TIMEOUT for those that watch."""
    async with connected(limits=Limits(approval_seconds=4)) as client:
        handle = await begin(client, THINK, lease=may_ask(tool_call="acp/*"))
        question = await next_question(handle)
        done = await asked_in(handle)
        assert done.answers == [REFUSED]
        (result,) = [body for kind, body in done.events if kind == "tool_result"]
        assert result["error"]["code"] == "TIMEOUT"
        assert result["error"]["details"] == {"decision": "deny", "by": "timeout"}
        with pytest.raises(JobNotFound):
            await question.answer("allow")


async def test_cancelled_while_open() -> None:
    """A cancelled job asks nobody any longer: the agent is told so, and the call has its result."""
    async with connected() as client:
        handle = await begin(client, THINK, ["wait"], lease=may_ask(tool_call="acp/*"))
        question = await next_question(handle)
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()
        (result,) = [body for kind, body in await told(handle) if kind == "tool_result"]
        assert result["error"]["code"] == "CANCELLED"
        assert result["error"]["details"] == {"decision": "deny", "by": "end"}
        with pytest.raises(JobNotFound):
            await question.answer("allow")


async def test_the_turn_ends_while_open() -> None:
    """An agent that ends its turn without waiting for the decision takes the question with it."""
    options = [{"optionId": "y", "kind": "allow_once", "name": "yes"}]
    permission: Frame = {"toolCall": {"toolCallId": "p", "kind": "think"}, "options": options}
    async with connected() as client:
        handle = await begin(
            client,
            ["send", "session/request_permission", permission],
            lease=may_ask(tool_call="acp/*"),
        )
        assert await handle.result() == ""
        (result,) = [body for kind, body in await told(handle) if kind == "tool_result"]
        assert result["error"]["details"] == {"decision": "deny", "by": "end"}


async def test_the_agent_takes_its_request_back() -> None:
    """With `$/cancel_request` the question is over, by the agent."""
    async with connected() as client:
        handle = await begin(client, ["take_back"], lease=may_ask(tool_call="acp/*"))
        done = await asked_in(handle)
        assert done.answers[0]["code"] == -32800
        _, result = [body for kind, body in done.events if kind == "tool_result"]
        assert result["error"]["code"] == "CANCELLED"
        assert result["error"]["details"] == {"decision": "deny", "by": "agent"}


async def test_two_things_to_ask_for(tmp_path: Path) -> None:
    """A request that would need two approvals is refused, and nobody is asked."""
    lease = may_ask(tool_call="terminal/*", fs_read=f"{tmp_path}/**")
    async with connected() as client:
        step: list[Any] = ["terminal", "pwd", [], {"cwd": str(tmp_path / "sub")}]
        done = await asked_in(await begin(client, step, lease=lease))
    assert done.results == ["PERMISSION_DENIED"]
    assert [kind for kind, _ in done.events] == ["tool_call", "tool_result"]


async def test_only_what_is_not_allowed_is_asked_for() -> None:
    """Of several paths, a person is asked for those that the lease does not allow anyway."""
    paths = ["/ws/a", "/etc/b", "/ws/c", "/etc/d"]
    call: Frame = {"kind": "edit", "locations": [{"path": each} for each in paths]}
    lease = {"fs.write": ["/ws/**"], **may_ask(fs_write="/etc/**")}
    async with connected() as client:
        seen = decisions(client, ("allow", {}))
        done = await asked_in(await begin(client, ["ask", call], lease=lease))
        assert done.answers == [ALLOWED]
        assert seen[0].targets == ["/etc/b", "/etc/d"]
        call["locations"].append({"path": "/root/x"})
        done = await asked_in(await begin(client, ["ask", call], lease=lease))
        assert done.answers == [REFUSED]
        assert len(seen) == 1


async def test_a_link_is_not_approved_with_its_name(tmp_path: Path) -> None:
    """An approved path that is a link leads nowhere, unless the lease allows where it leads."""
    (tmp_path / "secret").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    async with connected() as client:
        decisions(client, ("allow", {"scope": "job"}))
        lease = may_ask(fs_write=f"{tmp_path}/**")
        step = ["write", str(tmp_path / "link"), "changed"]
        done = await asked_in(await begin(client, step, lease=lease))
        assert done.results == ["PERMISSION_DENIED"]
    assert (tmp_path / "secret").read_text() == "kept"


async def test_an_approved_command() -> None:
    """The decision on a command is known before its end, and in its result then."""
    async with connected() as client:
        handle = await begin(
            client, ["terminal", "echo one; sleep 1"], lease=may_ask(tool_call="terminal/sh")
        )
        question = await next_question(handle)
        assert question.args["command"] == "echo one; sleep 1"
        await question.answer("allow")
        async for job in client.jobs():
            assert not job.waiting
        done = await asked_in(handle)
        assert done.answers[2]["output"] == "one\n"
        assert done.results == [{"exitCode": 0, "signal": None, "decision": "allow", "by": "alice"}]


async def test_no_way_to_allow_it_once() -> None:
    """Nobody is asked for what the agent offers to be allowed for ever only."""
    async with connected() as client:
        step = [*THINK, ["allow_always"]]
        done = await asked_in(await begin(client, step, lease=may_ask(tool_call="acp/*")))
        assert done.answers == [CANCELLED]
        assert [kind for kind, _ in done.events] == ["tool_call", "tool_result"]


async def test_the_agent_dies_while_open() -> None:
    """A program that ends with a question open takes it with it: the turn has ended."""
    options = [{"optionId": "y", "kind": "allow_once", "name": "yes"}]
    permission: Frame = {"toolCall": {"toolCallId": "p", "kind": "think"}, "options": options}
    async with connected() as client:
        handle = await begin(
            client,
            ["send", "session/request_permission", permission],
            ["read", "/"],  # decided after it
            ["exit", 3],
            lease=may_ask(tool_call="acp/*"),
        )
        events = await told(handle)
        _, result = [body for kind, body in events if kind == "tool_result"]
        assert result["error"]["details"] == {"decision": "deny", "by": "end"}
