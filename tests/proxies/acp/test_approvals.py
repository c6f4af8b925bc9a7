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


async def asked_about(*steps: list[Any], lease: dict[str, list[str]]) -> list[Question]:
    """Run a job whose agent asks for things that nobody allows; return the questions."""
    async with connected() as client:
        seen = decisions(client, *[("deny", {})] * len(steps))
        await asked_in(await begin(client, *steps, lease=lease))
    return seen


async def test_a_write_is_shown_as_a_diff(tmp_path: Path) -> None:
    """People see what a write changes, as far as the lease lets them see what is there."""
    lines = [f"line {number}\n" for number in range(100)]
    path = tmp_path / "file"
    path.write_text("".join(lines))
    lines[40:42] = ["changed"]
    step = ["write", str(path), "".join(lines).replace("line 90", "line ninety").rstrip()]
    for_all = may_ask(fs_write=f"{tmp_path}/**")
    (seen,) = await asked_about(step, lease={**for_all, "fs.read": [f"{tmp_path}/**"]})
    (change,) = seen.shown.changes or []
    assert (change.path, change.note) == (str(path), None)
    assert change.diff.splitlines() == [
        "@@ -38,9 +38,7 @@",
        *(" line 37", " line 38", " line 39", "-line 40", "-line 41", "-line 42"),
        *("+changedline 42", " line 43", " line 44", " line 45"),
        "@@ -88,7 +86,7 @@",
        *(" line 87", " line 88", " line 89", "-line 90", "+line ninety"),
        *(" line 91", " line 92", " line 93"),
        "@@ -97,4 +95,4 @@",
        *(" line 96", " line 97", " line 98", "-line 99", "+line 99"),
        "\\ No newline at end of file",
    ]
    assert seen.for_job == f"fs.write of {path}, with any content"
    new = ["write", str(tmp_path / "new"), "a\nb\n"]
    hidden, created = await asked_about(step, new, lease=for_all)
    for question in (hidden, created):
        (change,) = question.shown.changes or []
        assert change.diff.startswith("@@ -0,0 +1,")
        assert "the lease does not show" in str(change.note)


async def test_a_large_write_says_what_is_not_shown(tmp_path: Path) -> None:
    """What a question has no room for is left out, and it says how much that is."""
    lease = {**may_ask(fs_write=f"{tmp_path}/**"), "fs.read": [f"{tmp_path}/**"]}
    step = ["write", str(tmp_path / "file"), "0123456789abcde\n" * 10_000]
    (seen,) = await asked_about(step, lease=lease)
    (change,) = seen.shown.changes or []
    assert 20_000 < len(change.diff) < 32_768
    shown = change.diff.count("\n")
    assert change.note == f"a new file; only {shown:,} of 10,001 lines are shown"


async def test_a_permission_shows_what_the_agent_tells() -> None:
    """The whole input, the texts and the diffs beside it, the command, and the folder."""
    script = "echo " + "x" * 20_000
    content = [
        {"type": "diff", "path": "/ws/a.py", "oldText": "one\ntwo\n", "newText": "one\n2\n"},
        {"type": "content", "content": {"type": "text", "text": "the plan"}},
    ]
    edit = {"kind": "edit", "locations": [{"path": "/ws/b.py"}], "content": content}
    run = {"kind": "execute", "rawInput": {"command": ["sh", "-c", script]}}
    lease = may_ask(fs_write="/ws/**", tool_call="*/*")
    long = {"kind": "execute", "rawInput": {"command": "x" * 100_000}}
    steps: list[Any] = [["ask", each] for each in (edit, run, long)]
    of_edit, of_run, of_long = await asked_about(*steps, lease=lease)
    (change,) = of_edit.shown.changes or []
    assert change.diff == "@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    assert (change.path, change.note) == ("/ws/a.py", "as the agent describes it")
    assert of_edit.targets == ["/ws/b.py", "/ws/a.py"]
    assert of_edit.args["content"] == ["the plan"]
    assert of_run.args["input"] == run["rawInput"]
    assert of_run.shown.command == f"sh -c '{script}'"
    assert (of_run.shown.cwd or "").startswith("/")
    assert not of_run.truncated
    assert of_long.truncated


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
        assert question.args["command"] == question.shown.command == "echo one; sleep 1"
        assert question.for_job == "tool.call of terminal/sh, with any arguments"
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
