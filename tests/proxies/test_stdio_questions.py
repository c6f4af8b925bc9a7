"""Questions of a program are questions of its job: people answer them, and the program goes on."""

from __future__ import annotations

from typing import cast

import pytest

from arcp_trio import JobCancelled, JobContext, Json, Question
from arcp_trio.proxies.questions import MOST_HELD, ForwardedQuestions
from tests.proxies.runtimes import connected, events_of

MAY_ASK = {"tool.call": ["human.ask"]}
SCHEMA = {"type": "integer", "minimum": 2}


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ({"prompt": "Go?", "options": ["yes", "no"], "to": "Ann", "expires_in": 60}, "no"),
        ({"prompt": "How many?", "schema": SCHEMA}, 3),
        ({"prompt": "What?"}, {"any": ["json"]}),
    ],
)
async def test_people_answer_a_program(question: dict[str, Json], value: Json) -> None:
    """The job asks as the program does, once, and the answer reaches the program."""
    async with connected() as client:
        seen: list[Question] = []

        @client.on_question
        async def answer(asked: Question) -> None:
            seen.append(asked)
            await asked.answer(value)

        handle = await client.submit("curious", question, lease=MAY_ASK)
        events = await events_of(handle)
        assert await handle.result() == {"answer": value}
    (asked,) = seen
    assert (asked.prompt, asked.to) == (question["prompt"], question.get("to"))
    assert (asked.options, asked.schema) == (question.get("options"), question.get("schema"))
    kinds = [kind for kind, _ in events]
    assert kinds == ["tool_call", "x-vendor.arcp-trio.question", "tool_result"]
    assert events[2][1]["result"] == {"answer": value, "by": "alice"}


async def test_a_program_that_may_not_ask() -> None:
    """A question that the lease does not allow is a tool call that is refused, and told as one."""
    async with connected() as client:
        handle = await client.submit("curious", {"prompt": "Go?"})
        events = await events_of(handle)
        assert await handle.result() == {"code": "PERMISSION_DENIED"}
    assert [kind for kind, _ in events] == ["tool_call", "tool_result"]


async def test_nobody_answers_a_program() -> None:
    """The end of the time reaches the program, and the job's question is over, too."""
    async with connected() as client:
        handle = await client.submit("curious", {"prompt": "Go?", "expires_in": 1}, lease=MAY_ASK)
        assert await handle.result() == {"code": "TIMEOUT"}
        assert [info.waiting async for info in client.jobs()] == [[]]


async def test_a_cancelled_job_of_a_program_that_asks() -> None:
    """A job that is cancelled while its program asks ends as cancelled."""
    async with connected() as client:
        handle = await client.submit("curious", {"prompt": "Go?"}, lease=MAY_ASK)
        await anext(handle.questions())
        await handle.cancel()
        with pytest.raises(JobCancelled):
            await handle.result()


async def test_approvals_of_a_program() -> None:
    """The job asks for what its program may only do if a person agrees, and tells who it was."""
    async with connected() as client:
        seen: list[Question] = []
        answers = [("allow", "once"), ("deny", "once"), ("allow", "job")]

        @client.on_question
        async def decide(asked: Question) -> None:
            seen.append(asked)
            answer, scope = answers[len(seen) - 1]
            await asked.answer(answer, scope="job" if scope == "job" else None, reason="so")

        lease = {"x-vendor.arcp-trio.ask.fs.write": ["/ws/**"]}
        paths = ["/ws/a", "/ws/a", "/ws/a", "/ws/a", "/etc/a"]
        handle = await client.submit("careful", paths, lease=lease)
        events = await events_of(handle)
        denied = "PERMISSION_DENIED"
        assert await handle.result() == ["allow", denied, "allow", "allow", denied]
    assert [(each.kind, each.targets, each.tool) for each in seen] == [
        ("approval", ["/ws/a"], "write")
    ] * 3
    asking = ["tool_call", "status", "x-vendor.arcp-trio.question", "tool_result"]
    assert [kind for kind, _ in events] == asking * 3 + ["tool_call", "tool_result"] * 2
    results = [body for kind, body in events if kind == "tool_result"]
    decided = {"decision": "allow", "by": "alice", "reason": "so"}
    assert results[0]["result"] == {**decided, "bytes": 1}
    assert results[1]["error"]["details"] == {**decided, "decision": "deny"}
    assert results[3]["result"]["decision"] == "allow"


async def test_a_tool_call_of_a_program_that_asks() -> None:
    """A program's tool call asks in the job's name, and it is told who has allowed it."""
    async with connected() as client:
        lease = {"x-vendor.arcp-trio.ask.tool.call": ["mail.*"]}
        handle = await client.submit("sender", 1, lease=lease)
        question = await anext(handle.questions())
        await question.answer("allow")
        assert await handle.result() == "sent"
        events = await events_of(handle)
    asking = ["tool_call", "status", "x-vendor.arcp-trio.question", "status", "tool_result"]
    assert [kind for kind, _ in events] == asking
    assert events[3][1] == {
        "phase": "approved",
        "message": "alice has allowed tool.call of mail.send",
        "call_id": events[0][1]["call_id"],
        "result": {"decision": "allow", "by": "alice"},
    }


def test_calls_without_questions_are_told() -> None:
    """A program that calls `human.ask` again and again, and asks nothing, is kept in bounds."""
    questions = ForwardedQuestions(cast("JobContext", None))
    calls = [{"call_id": str(n), "tool": "human.ask"} for n in range(100)]
    told = [each for call in calls for each in questions.instead_of("tool_call", {**call})]
    assert told == [("tool_call", call) for call in calls[:-MOST_HELD]]
