"""Who may answer a question, with what, and until when."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import ArcpError, Json, Limits, Policy
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.errors import (
    InternalError,
    InvalidRequest,
    JobNotFound,
    PermissionDenied,
)
from arcp_trio.wire.features import ALL_FEATURES
from tests.questions.support import (
    ANSWER,
    MAY_ASK,
    UNKNOWN,
    WAITING,
    AskingStage,
    answer,
    asked,
    listed,
    next_question,
    outcome,
)
from tests.reading import until_end
from tests.stage import AUDITOR, BOB, OPERATOR


async def refused(peer: Peer, question: Frame, value: Json = None) -> Frame:
    """Answer in vain; return the payload of the refusal but for the ids of its request."""
    with pytest.raises(ArcpError) as refusal:
        await answer(peer, question, value)
    return refusal.value.payload()


async def test_any_session_of_the_principal(autojump_clock: MockClock) -> None:
    """A session that did not submit the job answers, and those that watch see it and by whom."""
    async with AskingStage.asking() as stage:
        peer, other = await stage.welcomed(), await stage.welcomed()
        question = await asked(peer)
        await answer(other, question, "sure")
        assert await outcome(peer, question["job_id"]) == {"answer": "sure"}


async def test_an_approver_answers_and_observes(autojump_clock: MockClock) -> None:
    """An approver finds everybody's jobs in its listing, follows them, and answers; it is named."""
    async with AskingStage.asking() as stage:
        peer, approver = await stage.welcomed(), await stage.welcomed(token=BOB)
        question = await asked(peer)
        assert (await listed(approver, question["job_id"]))["questions"]
        subscribe = {"job_id": question["job_id"], "history": True}
        await approver.answer("job.subscribed", await approver.send("job.subscribe", subscribe))
        assert await next_question(approver, question["job_id"]) == question
        await answer(approver, question, 7)
        await peer.until_terminal(question["job_id"])
        result = peer.seen[-1]["payload"]["body"]
        assert result["result"] == {"answer": 7, "by": "bob"}


async def test_an_observer_sees_and_may_not_answer(autojump_clock: MockClock) -> None:
    """An observer is refused an open question, and told of one that is over as anybody is."""
    async with AskingStage.asking() as stage:
        peer, observer = await stage.welcomed(), await stage.welcomed(token=AUDITOR)
        question = await asked(peer)
        assert (await listed(observer, question["job_id"]))["questions"]
        with pytest.raises(PermissionDenied):
            await answer(observer, question, 1)
        await answer(peer, question, 1)
        with pytest.raises(JobNotFound):
            await answer(observer, question, 1)


async def test_an_operator_may_not(autojump_clock: MockClock) -> None:
    """The right to cancel any job does not include answering: operators are told of no question."""
    async with AskingStage.asking() as stage:
        peer, operator = await stage.welcomed(), await stage.welcomed(token=OPERATOR)
        question = await asked(peer)
        with pytest.raises(JobNotFound):
            await answer(operator, question, 1)


async def test_what_cannot_be_answered_is_like_what_is_not_there(
    autojump_clock: MockClock,
) -> None:
    """A foreign job, no job, no question, and one that is over are refused in the same words."""
    async with AskingStage.asking(policy=Policy()) as stage:
        peer, stranger = await stage.welcomed(), await stage.welcomed(token=BOB)
        question = await asked(peer)
        same = [
            await refused(stranger, question),
            await refused(stranger, question | {"job_id": UNKNOWN}),
            await refused(peer, question | {"job_id": UNKNOWN}),
            await refused(peer, question | {"question_id": "call_none"}),
        ]
        await answer(peer, question, 1)
        same.append(await refused(peer, question))
        await peer.until_terminal(question["job_id"])
        same.append(await refused(peer, question))
        assert same == [same[0]] * len(same)
        assert same[0]["code"] == "JOB_NOT_FOUND"


@pytest.mark.parametrize(
    ("question", "value", "text"),
    [
        ({"options": ["yes", "no"]}, "maybe", "expected one of 'yes', 'no' @ $.payload.answer"),
        ({"options": ["yes", "no"]}, 1, "expected one of"),
        ({"options": ["yes", "no"]}, None, "expected one of"),
        ({"options": ["yes", "no"]}, ["yes"], "expected one of"),
        ({"schema": {"type": "integer"}}, "1", "expected integer @ $.payload.answer"),
        (
            {"schema": {"properties": {"a": {"items": {"maximum": 3}}}}},
            {"a": [1, 5]},
            "expected at most 3 @ $.payload.answer.a[1]",
        ),
    ],
)
async def test_another_answer_than_was_asked_for(
    question: Frame, value: Json, text: str, autojump_clock: MockClock
) -> None:
    """An answer outside of options or schema is refused by what is wrong; it can be put right."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        open_question = await asked(peer, **question)
        with pytest.raises(InvalidRequest, match=None) as refusal:
            await answer(peer, open_question, value)
        assert text in refusal.value.message
        assert (await listed(peer, open_question["job_id"]))["questions"]


async def test_malformed_answers(autojump_clock: MockClock) -> None:
    """A missing field is named; without the feature no answer is taken."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        question = await asked(peer)
        fields = {"job_id": question["job_id"], "question_id": question["question_id"], "answer": 1}
        for name in fields:
            rest = {each: item for each, item in fields.items() if each != name}
            request = await peer.send(ANSWER, rest)
            with pytest.raises(InvalidRequest, match=name):
                await peer.answer("", request)
        plain = await stage.welcomed(features=ALL_FEATURES)
        with pytest.raises(InvalidRequest, match="not negotiated"):
            await answer(plain, question, 1)
        await answer(peer, question, None)


async def test_an_answer_that_fits_into_no_frame(autojump_clock: MockClock) -> None:
    """An answer that would be too large, or too deep, for the events is refused and can be cut."""
    async with AskingStage.asking(limits=Limits(frame_bytes_out=4_096)) as stage:
        peer = await stage.welcomed()
        question = await asked(peer)
        with pytest.raises(InternalError) as refusal:
            await answer(peer, question, "x" * 5_000)
        assert refusal.value.details["limit"] == "frame_bytes_out"
        deep: Json = 1
        for _ in range(61):
            deep = [deep]
        with pytest.raises(InvalidRequest, match="cannot be passed on"):
            await answer(peer, question, deep)
        await answer(peer, question, "short")
        assert await outcome(peer, question["job_id"]) == {"answer": "short"}


async def test_a_question_that_fits_into_no_frame(autojump_clock: MockClock) -> None:
    """A question that is too large for a frame is refused to its agent, and nothing is told."""
    async with AskingStage.asking(limits=Limits(frame_bytes_out=4_096)) as stage:
        peer = await stage.welcomed()
        job = await peer.submit("asker", {"prompt": "x" * 5_000}, lease_request=MAY_ASK)
        (end,) = await until_end(peer, job["job_id"])
        assert end["payload"]["result"]["details"]["limit"] == "frame_bytes_out"


async def test_what_a_job_asks_at_once_is_bounded(autojump_clock: MockClock) -> None:
    """Past `questions_per_job` or `question_bytes` a question is refused, and the others wait."""
    limits = Limits(questions_per_job=2, question_bytes=1_000)
    async with AskingStage.asking(limits=limits) as stage:
        peer = await stage.welcomed()
        asks = [{"prompt": text} for text in ("p" * 800, "q" * 400, "one", "two")]
        job_id = (await peer.submit("crowd", asks, lease_request=MAY_ASK))["job_id"]
        first, second = await next_question(peer, job_id), await next_question(peer, job_id)
        assert second["prompt"] == "one"
        await trio.sleep(1)  # all is asked
        await answer(peer, first, 1)
        await answer(peer, second, 2)
        assert await outcome(peer, job_id) == {
            "p" * 800: 1,
            "q" * 400: "question_bytes",
            "one": 2,
            "two": "questions_per_job",
        }


async def test_listings_of_large_questions_fit_into_frames(autojump_clock: MockClock) -> None:
    """However much jobs ask, no page of a listing is too large, and the pages have all of it."""
    limits = Limits(frame_bytes_out=200_000)
    async with AskingStage.asking(limits=limits) as stage:
        peer = await stage.welcomed()
        for _ in range(12):
            await asked(peer, prompt="p" * 60_000)
        pages: list[int] = []
        cursor: str | None = None
        while not pages or cursor is not None:
            wanted = {} if cursor is None else {"cursor": cursor}
            page = await peer.answer("session.jobs", await peer.send("session.list_jobs", wanted))
            assert all(job[WAITING]["questions"] for job in page["jobs"])
            pages.append(len(page["jobs"]))
            cursor = page["next_cursor"]
        assert sum(pages) == 12
        assert max(pages) <= 3


async def test_a_stranger_costs_nobody_anything(autojump_clock: MockClock) -> None:
    """Many refused answers of a stranger leave the question open and hold up no one."""
    async with AskingStage.asking(policy=Policy()) as stage:
        peer, stranger = await stage.welcomed(), await stage.welcomed(token=BOB)
        question = await asked(peer, expires_in=5)
        async with trio.open_nursery() as nursery:

            async def attack() -> None:
                for _ in range(500):
                    await refused(stranger, question)

            nursery.start_soon(attack)
            await answer(peer, question, "mine")
            assert await outcome(peer, question["job_id"]) == {"answer": "mine"}


@pytest.mark.parametrize(
    ("limits", "full"),
    [
        (Limits(jobs_per_principal=1, waiting_jobs_per_principal=2), "jobs_per_principal"),
        (Limits(jobs=1, waiting_jobs=2), "jobs"),
    ],
)
async def test_jobs_that_wait_do_not_run(
    limits: Limits, full: str, autojump_clock: MockClock
) -> None:
    """A job counts as running while it waits for nobody, or past the bound of those that wait."""
    async with AskingStage.asking(limits=limits) as stage:
        peer = await stage.welcomed()
        first = await asked(peer)
        await asked(peer)
        third = await asked(peer)
        with pytest.raises(InternalError, match=f"the limit {full} is reached"):
            await asked(peer)
        await answer(peer, first, "so")
        await peer.until_terminal(first["job_id"])
        await asked(peer)
        await peer.send("job.cancel", {"job_id": third["job_id"]})
        await peer.until_terminal(third["job_id"])
        sleeping = await peer.submit("stubborn", 10)
        with pytest.raises(InternalError, match=f"the limit {full} is reached"):
            await asked(peer)
        await peer.until_terminal(sleeping["job_id"])
        await asked(peer)
