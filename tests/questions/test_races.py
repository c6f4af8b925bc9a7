"""Answers against each other, against the time's end, and against the end of the job."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobNotFound
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from tests.questions.support import (
    ANSWER,
    ANSWERED,
    MAY_ASK,
    AskingStage,
    answer,
    asked,
    listed,
    next_question,
    outcome,
)
from tests.reading import until_end
from tests.stage import BOB


async def send(peer: Peer, question: Frame, value: str) -> str:
    """Send an answer, and return the id of its request."""
    ids = {name: question[name] for name in ("job_id", "question_id")}
    return await peer.send(ANSWER, {**ids, "answer": value})


async def verdict(peer: Peer, request: str) -> str:
    """Return whether an answer is the one, or the code of its refusal."""
    try:
        await peer.answer(ANSWERED, request)
    except JobNotFound as refusal:
        return refusal.code
    return ANSWERED


async def test_two_answerers(autojump_clock: MockClock) -> None:
    """Of two answers at the same time one is the answer, and only its sender is told so."""
    async with AskingStage.asking() as stage:
        peer, bob = await stage.welcomed(), await stage.welcomed(token=BOB)
        for _ in range(20):
            question = await asked(peer)
            requests: dict[str, str] = {}

            async def race(each: Peer, name: str, question: Frame, sent: dict[str, str]) -> None:
                sent[name] = await send(each, question, name)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(race, peer, "alice", question, requests)
                nursery.start_soon(race, bob, "bob", question, requests)
            verdicts = {
                "alice": await verdict(peer, requests["alice"]),
                "bob": await verdict(bob, requests["bob"]),
            }
            winner = (await outcome(peer, question["job_id"]))["answer"]
            loser = {"alice": "bob", "bob": "alice"}[winner]
            assert verdicts == {winner: ANSWERED, loser: "JOB_NOT_FOUND"}
            assert peer.seen[-1]["payload"]["body"]["result"]["by"] == winner


@pytest.mark.parametrize(("early", "told"), [(0.001, ANSWERED), (0.0, "JOB_NOT_FOUND")])
async def test_an_answer_at_the_times_end(early: float, told: str, mock_clock: MockClock) -> None:
    """Up to the moment an answer counts, and from it on none, although the agent has not run yet.

    The answer is on its way in the same pass of the loop in which the time ends.
    """
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        question = await asked(peer, expires_in=10)
        await trio.testing.wait_all_tasks_blocked()
        request = await send(peer, question, "late?")
        mock_clock.jump(10 - early - trio.current_time())
        assert await verdict(peer, request) == told
        mock_clock.jump(1)
        result = await outcome(peer, question["job_id"])
        assert result.get("answer", result.get("code")) == (
            "late?" if told == ANSWERED else "TIMEOUT"
        )


async def test_a_cancel_ends_the_question(autojump_clock: MockClock) -> None:
    """Once a job is cancelled its question is over: not listed, not to be answered, not asked."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        job_id = (await peer.submit("shielded", lease_request=MAY_ASK))["job_id"]
        question = await next_question(peer, job_id)
        await peer.send("job.cancel", {"job_id": job_id})
        await peer.expect("job.cancelled")
        assert await listed(peer, job_id) is None
        with pytest.raises(JobNotFound):
            await answer(peer, question, 1)
        told = await until_end(peer, job_id)
        assert told[-1]["payload"]["final_status"] == "cancelled"
        lines = [
            frame["payload"]["body"]["message"]
            for frame in told
            if frame["type"] == "job.event" and frame["payload"]["kind"] == "log"
        ]
        assert lines == ["TIMEOUT", "CANCELLED"]


async def test_a_cancelled_agent_leaves_no_question(autojump_clock: MockClock) -> None:
    """A job that is cancelled while it asks ends the tool call as given up, before its end."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        question = await asked(peer)
        await peer.send("job.cancel", {"job_id": question["job_id"]})
        told = await until_end(peer, question["job_id"])
        body = told[-2]["payload"]["body"]
        assert body["call_id"] == question["question_id"]
        assert body["error"]["code"] == "CANCELLED"
        with pytest.raises(JobNotFound):
            await answer(peer, question, 1)


@pytest.mark.parametrize(("early", "told"), [(0.001, ANSWERED), (0.0, "JOB_NOT_FOUND")])
async def test_an_answer_and_the_end_of_the_job(
    early: float, told: str, mock_clock: MockClock
) -> None:
    """An answer counts until the agent leaves its question and returns, and from then on none."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        job_id = (await peer.submit("impatient", 10, lease_request=MAY_ASK))["job_id"]
        question = await next_question(peer, job_id)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(10 - early - trio.current_time())
        if not early:
            await peer.until_terminal(job_id)
        assert await verdict(peer, await send(peer, question, "quick")) == told
        result = await outcome(peer, job_id)
        assert result == ("quick" if told == ANSWERED else "left")
        tools = [each["payload"]["body"] for each in peer.seen if each["type"] == "job.event"]
        assert tools[-1]["call_id"] == question["question_id"]
        assert ("result" in tools[-1]) is (told == ANSWERED)


async def test_an_answer_and_a_cancel(autojump_clock: MockClock) -> None:
    """An answer that is taken just before a cancel stays the call's one result."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        question = await asked(peer)
        request = await send(peer, question, "yes")
        await peer.send("job.cancel", {"job_id": question["job_id"]})
        assert await verdict(peer, request) == ANSWERED
        await peer.until_terminal(question["job_id"])
        results = [
            frame["payload"]["body"]
            for frame in peer.seen
            if frame["type"] == "job.event" and frame["payload"]["kind"] == "tool_result"
        ]
        assert [body.get("result") for body in results] == [{"answer": "yes", "by": "alice"}]


async def test_a_resume_repeats_what_was_said(autojump_clock: MockClock) -> None:
    """A client that loses its connection gets the question again, and that its answer won."""
    async with AskingStage.asking() as stage:
        first, other = await stage.welcomed(), await stage.welcomed()
        job_id = (await first.submit("asker", {"prompt": "?"}, lease_request=MAY_ASK))["job_id"]
        before = first.resume_from()
        question = await next_question(first, job_id)
        await first.drop()
        second = await stage.welcomed(resume=before | {"resume_token": first.resume_token})
        assert await next_question(second, job_id) == question
        before = second.resume_from()
        request = await send(second, question, "yes")
        assert await verdict(second, request) == ANSWERED
        await second.drop()
        third = await stage.welcomed(resume=before | {"resume_token": second.resume_token})
        await third.expect(ANSWERED, request_id=request)
        await third.until_terminal(job_id)
        with pytest.raises(JobNotFound):
            await answer(other, question, "no")
