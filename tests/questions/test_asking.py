"""How a job asks people, and how their answers reach it."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from arcp_trio import Json
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import ALL_FEATURES
from tests.questions.support import (
    MAY_ASK,
    QUESTION,
    WAITING,
    AskingStage,
    answer,
    asked,
    listed,
    next_question,
    outcome,
)
from tests.reading import until_end

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def bodies(frames: list[Frame]) -> list[tuple[str, Json]]:
    """Return the kinds and bodies of the events among frames."""
    events = [frame["payload"] for frame in frames if frame["type"] == "job.event"]
    return [(event["kind"], event["body"]) for event in events]


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ({}, {"any": ["json", None, 1.5]}),
        ({}, None),
        ({"options": ["yes", "no"]}, "no"),
        ({"schema": SCHEMA}, {"n": 3}),
        ({"to": "the editor", "expires_in": 60, "options": ["yes"], "name": "last word"}, "yes"),
    ],
)
async def test_an_answer_reaches_the_agent(
    question: Frame, value: Json, autojump_clock: MockClock
) -> None:
    """The question is a tool call and an event under one id; the answer is the call's result."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        given = {"prompt": "Publish?", **question}
        job_id = (await peer.submit("asker", given, lease_request=MAY_ASK))["job_id"]
        told = [await peer.receive(), await peer.receive()]
        (call, call_body), (kind, body) = bodies(told)
        assert (call, kind) == ("tool_call", QUESTION)
        question_id = body["question_id"]
        args = {name: item for name, item in body.items() if name != "question_id"}
        assert call_body == {"tool": "human.ask", "call_id": question_id, "args": args}
        expected = {name: given[name] for name in given if name not in ("expires_in", "name")}
        assert {name: args[name] for name in args if name != "expires_at"} == expected
        assert ("expires_at" in args) is ("expires_in" in question)
        await answer(peer, {"job_id": job_id, "question_id": question_id}, value)
        assert await outcome(peer, job_id) == {"answer": value}
        ((kind, body),) = bodies(peer.seen)
        assert (kind, body["call_id"]) == ("tool_result", question_id)
        assert body["result"] == {"answer": value, "by": "alice"}


async def test_nobody_answers_in_time(autojump_clock: MockClock) -> None:
    """At its time's end a question is Unanswered: in the agent, and in the tool's result."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        question = await asked(peer, expires_in=30)
        told = await until_end(peer, question["job_id"])
        assert told[-1]["payload"]["result"]["class"] == "Unanswered"
        assert told[-1]["payload"]["result"]["code"] == "TIMEOUT"
        assert autojump_clock.current_time() == pytest.approx(30, abs=1)
        ((kind, body),) = bodies(told)
        assert (kind, body["error"]["code"]) == ("tool_result", "TIMEOUT")


async def test_an_agent_that_counts_on_an_answer(autojump_clock: MockClock) -> None:
    """Its job fails in words that name the question: it has not run for too long itself."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        given = {"prompt": "Publish?", "expires_in": 30}
        job = await peer.submit("trusting", given, lease_request=MAY_ASK)
        end = (await peer.until_terminal(job["job_id"]))["payload"]
        assert (end["final_status"], end["code"]) == ("error", "INTERNAL_ERROR")
        assert end["message"] == "nobody has answered in time: Publish?"


async def test_a_lease_without_people(autojump_clock: MockClock) -> None:
    """A job whose lease does not allow `human.ask` is refused, and nobody is asked."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        lease = {"tool.call": ["search.*"]}
        job = await peer.submit("asker", {"prompt": "Publish?"}, lease_request=lease)
        told = await until_end(peer, job["job_id"])
        assert told[-1]["payload"]["result"]["code"] == "PERMISSION_DENIED"
        assert [kind for kind, _ in bodies(told)] == ["tool_call", "tool_result"]


@pytest.mark.parametrize(
    ("question", "error", "text"),
    [
        ({"prompt": ""}, "ValueError", "prompt must not be empty"),
        ({"prompt": 3}, "TypeError", "prompt must be a text, not int"),
        ({"options": ["a"], "schema": {}}, "ValueError", "options or a schema, not both"),
        ({"options": []}, "ValueError", "at least one"),
        ({"options": ["a", "a"]}, "ValueError", "differ"),
        ({"options": ["a", 1]}, "TypeError", "each of options must be a text"),
        ({"options": "yes"}, "TypeError", "not one text"),
        ({"schema": {"pattern": "a+"}}, "ValueError", "schema: 'pattern' is not one of"),
        ({"schema": ["type"]}, "TypeError", "schema must be an object, not list"),
        ({"to": 1}, "TypeError", "to must be a text"),
        ({"expires_in": 0}, "ValueError", "expires_in must be"),
        ({"expires_in": -1}, "ValueError", "expires_in must be"),
        ({"name": ""}, "ValueError", "a name has 1 to 200 characters"),
        ({"name": "n" * 201}, "ValueError", "a name has 1 to 200 characters, not 201"),
        ({"name": 1}, "TypeError", "a name is a text"),
    ],
)
async def test_what_cannot_be_asked(
    question: Frame, error: str, text: str, autojump_clock: MockClock
) -> None:
    """A question that makes no sense raises in the agent, and no client is told of it."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        given = {"prompt": "Publish?", **question}
        job = await peer.submit("asker", given, lease_request=MAY_ASK)
        (end,) = await until_end(peer, job["job_id"])
        assert end["payload"]["result"]["class"] == error
        assert text in end["payload"]["result"]["text"]


async def test_a_client_that_does_not_know_questions(autojump_clock: MockClock) -> None:
    """Without the feature a client sees the tool call and its result alone, and no mark in lists.

    The events that it does not see take no numbers.
    """
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        other = await stage.welcomed(features=ALL_FEATURES)
        question = await asked(peer)
        job_id = question["job_id"]
        request = await other.send("job.subscribe", {"job_id": job_id, "history": True})
        await other.answer("job.subscribed", request)
        assert await listed(other, job_id) is None
        assert (await listed(peer, job_id))["questions"]
        await answer(peer, question, 1)
        told = await until_end(other, job_id)
        events = [frame for frame in other.seen + told if "event_seq" in frame]
        assert [kind for kind, _ in bodies(events)] == ["tool_call", "tool_result"]
        assert [frame["event_seq"] for frame in events] == [1, 2, 3]


async def test_a_listing_tells_what_is_asked(autojump_clock: MockClock) -> None:
    """A job that waits is marked with its questions, in order; one that does not has no mark."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        questions = [
            {"prompt": "one", "options": ["a", "b"], "to": "Ann", "expires_in": 50},
            {"prompt": "two", "schema": SCHEMA},
        ]
        job_id = (await peer.submit("crowd", questions, lease_request=MAY_ASK))["job_id"]
        one, two = [await next_question(peer, job_id) for _ in questions]
        told = [{k: v for k, v in each.items() if k != "job_id"} for each in (one, two)]
        assert await listed(peer, job_id) == {"questions": told}
        assert set(told[0]) == {"question_id", "prompt", "options", "to", "expires_at"}
        assert set(told[1]) == {"question_id", "prompt", "schema"}
        await answer(peer, two, {"n": 1})
        assert await listed(peer, job_id) == {"questions": told[:1]}
        await answer(peer, one, "b")
        await peer.until_terminal(job_id)
        assert await listed(peer, job_id) is None


async def test_questions_side_by_side(autojump_clock: MockClock) -> None:
    """Several questions of a job wait at once, and each gets its own answer in any order."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        asks = [{"prompt": f"{n}?", "name": f"ask {n}"} for n in range(3)]
        job_id = (await peer.submit("crowd", asks, lease_request=MAY_ASK))["job_id"]
        questions = [await next_question(peer, job_id) for _ in asks]
        assert len({each["question_id"] for each in questions}) == 3
        for question in reversed(questions):
            await answer(peer, question, f"to {question['prompt']}")
        assert await outcome(peer, job_id) == {f"{n}?": f"to {n}?" for n in range(3)}


async def test_the_last_words_of_a_job_that_asks(autojump_clock: MockClock) -> None:
    """A listing tells in words that a job asks."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        await asked(peer)
        request = await peer.send("session.list_jobs", {})
        (entry,) = (await peer.answer("session.jobs", request))["jobs"]
        assert entry["x-vendor.arcp-trio"]["last_event"] == "asks: Publish?"
        assert list(entry)[-1] == WAITING
