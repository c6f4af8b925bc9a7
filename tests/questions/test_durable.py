"""Questions of durable jobs: they outlast the runtime, and so do their answers."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobNotFound, Limits, Question, Runtime, connect
from arcp_trio.runtime.job.approvals import MOST_ARGS_BYTES
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.pair import open_stream
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.errors import InternalError
from tests.durability.stores import FaultyStore
from tests.durable.stage import DurableStore
from tests.questions.approving import ASK
from tests.questions.lives import (
    LATE,
    Snapshots,
    answered,
    begun,
    copied,
    decided,
    history,
    in_short,
    life,
    waiting,
)
from tests.questions.support import MAY_ASK, AskingStage, answer, next_question

STORY = [
    "begun",
    "call a?",
    "asks a?",
    "{'answer': 'to a?', 'by': 'alice'}",
    "1 answered",
    f"call {LATE}",
    f"asks {LATE}",
    "TIMEOUT",
    "2 answered",
    "call b?",
    "asks b?",
    "{'answer': 'to b?', 'by': 'alice'}",
    "3 answered",
    "['to a?', 'nobody', 'to b?']",
]
"""What is told of a job without a restart."""
QUESTIONS: list[Frame] = [
    {"prompt": "a?"},
    {"prompt": LATE, "expires_in": 10},
    {"prompt": "b?", "options": ["to b?"]},
]


async def test_a_question_outlasts_the_runtime(autojump_clock: MockClock) -> None:
    """A question that was open at the kill is open again under its id, and is asked once."""
    store = DurableStore()
    async with life(store) as (_, peer):
        job_id = await begun(peer, {"prompt": "a?", "expires_in": 1_000})
        before = await next_question(peer, job_id)
        left = copied(store)
    async with life(left) as (runtime, peer):
        assert await waiting(peer, job_id) == [before]
        await answer(peer, before, 1)
        assert await history(runtime, job_id) == [
            "begun",
            "call a?",
            "asks a?",
            "resumed 2",
            "{'answer': 1, 'by': 'alice'}",
            "1 answered",
            "[1]",
        ]


async def story_of(runtime: Runtime, job_id: str) -> list[str]:
    """Answer what a job asks; return what was told of it, from its first event to its end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answered, runtime, job_id)
        told = await history(runtime, job_id)
        nursery.cancel_scope.cancel()
    return told


async def test_a_kill_at_every_commit(autojump_clock: MockClock) -> None:
    """Wherever the runtime is killed, all is asked once and answered once, with one result."""
    store = Snapshots()
    async with life(store) as (runtime, peer):
        job_id = await begun(peer, *QUESTIONS)
        assert await story_of(runtime, job_id) == STORY
    killed = 0
    for left in store.taken:
        async with life(left) as (runtime, peer):
            listed = await peer.answer("session.jobs", await peer.send("session.list_jobs", {}))
            if not [job for job in listed["jobs"] if job["status"] in ("pending", "running")]:
                continue
            killed += 1
            told = await story_of(runtime, job_id)
            assert [each for each in told if not each.startswith("resumed")] == STORY
            assert sum(each.startswith("resumed") for each in told) <= 1
    assert killed > 5


MAY_SEND = {
    f"{ASK}tool.call": ["mail.*"],
    f"{ASK}net.fetch": ["https://h.example/*"],
    f"{ASK}agent.delegate": ["echo"],
}
SENT = ["sent", "sent to ada", "drafted", "PERMISSION_DENIED", "to the child"]
ASKED = [
    "asks Allow tool.call of mail.send?",
    "asks Allow tool.call of mail.send?",
    "asks Allow tool.call of mail.draft?",
    "asks Allow tool.call of mail.delete?",
    "asks Allow net.fetch of https://h.example/a?",
    "asks Allow agent.delegate of echo@1.0.0?",
    "asks Allow tool.call of mail.ping?",
]


async def sent(runtime: Runtime, job_id: str) -> list[str]:
    """Decide what a job asks for; return what was told of it, from its first event to its end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(decided, runtime, job_id)
        told = await history(runtime, job_id)
        nursery.cancel_scope.cancel()
    return told


async def test_a_kill_at_every_commit_of_approvals(autojump_clock: MockClock) -> None:
    """Wherever the runtime is killed, people decide once on each thing, and it comes out alike."""
    store = Snapshots()
    async with life(store) as (runtime, peer):
        job_id = (await peer.submit("sender", lease_request=MAY_SEND))["job_id"]
        told = await sent(runtime, job_id)
        assert told[-1] == str(SENT)
        assert [each for each in told if each.startswith("asks")] == ASKED
    killed = 0
    for left in store.taken:
        async with life(left) as (runtime, peer):
            listed = await peer.answer("session.jobs", await peer.send("session.list_jobs", {}))
            status = {job["job_id"]: job["status"] for job in listed["jobs"]}.get(job_id)
            if status not in ("pending", "running"):
                continue
            killed += 1
            told = await sent(runtime, job_id)
            assert told[-1] == str(SENT)
            assert [each for each in told if each.startswith("asks")] == ASKED
    assert killed > 20


async def test_nobody_has_decided(autojump_clock: MockClock) -> None:
    """That nobody has decided in time is remembered, too: nobody is asked again."""
    store = DurableStore()
    async with life(store, Limits(approval_seconds=5)) as (_, peer):
        job_id = (await peer.submit("patient", lease_request=MAY_SEND))["job_id"]
        await trio.sleep(10)
        left = copied(store)
    async with life(left) as (runtime, _):
        told = await history(runtime, job_id)
    assert told[-1] == "TIMEOUT"
    assert [each for each in told if each.startswith("asks")] == ASKED[:1]


async def test_a_no_before_a_yes_for_the_job(autojump_clock: MockClock) -> None:
    """What was denied stays denied in a later run, though the tool was allowed after that."""
    store = DurableStore()
    async with life(store) as (_, peer):
        job_id = (await peer.submit("poster", lease_request=MAY_SEND))["job_id"]
        await answer(peer, await next_question(peer, job_id), "deny")
        await answer(peer, await next_question(peer, job_id), "allow", scope="job")
        await trio.sleep(1)
        left = copied(store)
    async with life(left) as (runtime, _):
        told = await history(runtime, job_id)
    assert told[-1] == "['PERMISSION_DENIED', 'ada']"
    assert told.count(ASKED[0]) == 2


@pytest.mark.parametrize("decided", ["allow", None])
@pytest.mark.parametrize("size", [1, MOST_ARGS_BYTES])
async def test_a_yes_to_something_else(
    size: int, decided: str | None, autojump_clock: MockClock
) -> None:
    """Code that is not the same asks again, also if the difference is too far back to be shown."""
    store = DurableStore()
    async with life(store) as (_, peer):
        job = await peer.submit("fickle", "x" * size, lease_request=MAY_SEND)
        first = await next_question(peer, job["job_id"])
        if decided:
            await answer(peer, first, decided)
        await trio.sleep(1)
        left = copied(store)
    async with life(left) as (runtime, peer):
        await trio.sleep(1)
        (second,) = await waiting(peer, job["job_id"])
        assert (first["args"] != second["args"]) == (size == 1)
        await answer(peer, second, "allow")
        assert await waiting(peer, job["job_id"]) == []
        assert "resumed 2" in await history(runtime, job["job_id"])  # which ends with the job


@pytest.mark.parametrize("value", ["early", "late"])
async def test_an_answer_before_the_job_is_begun_again(
    value: str, autojump_clock: MockClock
) -> None:
    """A job that waits for its turn is listed with what it asks, and takes answers."""
    store = DurableStore()
    async with life(store) as (_, peer):
        jobs = [await begun(peer, {"prompt": "a?", "expires_in": 100}) for _ in range(5)]
        await trio.sleep(1)
        left = copied(store)
    async with life(left, Limits(jobs_begun_per_second=1)) as (runtime, peer):
        last = jobs[-1]
        (question,) = await waiting(peer, last)
        if value == "early":
            await answer(peer, question, value)
            with pytest.raises(JobNotFound):
                await answer(peer, question, "second")
        assert await waiting(peer, last) == ([] if value == "early" else [question])
        told = await history(runtime, last)
        if value == "early":
            settled = "{'answer': 'early', 'by': 'alice'}"
            assert told[3:] == [settled, "resumed 2", "1 answered", "['early']"]
        else:
            assert told[3:] == ["resumed 2", "TIMEOUT", "1 answered", "['nobody']"]


async def test_the_time_goes_on_while_the_runtime_is_down(autojump_clock: MockClock) -> None:
    """An answer after the end of the time is too late, before the job is begun again, too."""
    store = DurableStore()
    async with life(store) as (_, peer):
        jobs = [await begun(peer, {"prompt": "a?", "expires_in": 100}) for _ in range(3)]
        question = await next_question(peer, jobs[-1])
        left = copied(store)
    await trio.sleep(200)
    async with life(left, Limits(jobs_begun_per_second=1)) as (runtime, peer):
        assert await waiting(peer, jobs[-1]) == []
        with pytest.raises(JobNotFound):
            await answer(peer, question, "late")
        told = await history(runtime, jobs[-1])
        assert told[3:] == ["resumed 2", "TIMEOUT", "1 answered", "['nobody']"]


async def test_a_time_out_stays(autojump_clock: MockClock) -> None:
    """That nobody answered is remembered: a later run neither asks again nor waits."""
    store = DurableStore()
    async with life(store) as (_, peer):
        job_id = await begun(peer, {"prompt": LATE, "expires_in": 10}, {"prompt": "b?"})
        await next_question(peer, job_id)
        assert (await next_question(peer, job_id))["prompt"] == "b?"
        left = copied(store)
    async with life(left) as (runtime, peer):
        (question,) = await waiting(peer, job_id)
        await answer(peer, question, 2)
        told = await history(runtime, job_id)
        assert told.count("TIMEOUT") == told.count(f"asks {LATE}") == 1
        assert told[-1] == "['nobody', 2]"


async def test_an_answer_that_is_too_large_to_remember(autojump_clock: MockClock) -> None:
    """Past `memo_bytes` an answer is refused by the limit, and the question stays open."""
    async with life(DurableStore(), Limits(memo_bytes=1_000)) as (runtime, peer):
        job_id = await begun(peer, {"prompt": "a?"})
        question = await next_question(peer, job_id)
        with pytest.raises(InternalError) as refusal:
            await answer(peer, question, "x" * 1_000)
        assert refusal.value.details["limit"] == "memo_bytes"
        await answer(peer, question, "x" * 800)
        told = await history(runtime, job_id)
        assert told[-1] == str(["x" * 800])
        assert sum(each.startswith("{'answer'") for each in told) == 1


@pytest.mark.logs_error("agent failed")
async def test_tasks_that_ask_under_one_name(autojump_clock: MockClock) -> None:
    """A second question with the same name in another task is refused, in any job."""
    async with AskingStage.asking() as stage:
        peer = await stage.welcomed()
        asks = [{"prompt": "one?", "name": "same"}, {"prompt": "two?", "name": "same"}]
        job = await peer.submit("crowd", asks, lease_request=MAY_ASK)
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["code"] == "INTERNAL_ERROR"


async def test_a_question_inside_of_a_step(autojump_clock: MockClock) -> None:
    """A step that was interrupted asks no question again, whether it was answered or not."""
    store = DurableStore()
    async with life(store) as (runtime, peer):
        job_id = (await peer.submit("stepper", lease_request=MAY_ASK))["job_id"]
        await answer(peer, await next_question(peer, job_id), 1)
        question = await next_question(peer, job_id)
        left = copied(store)
    async with life(left) as (runtime, peer):
        await answer(peer, question, 2)
        told = await history(runtime, job_id)
        assert told[-1] == "[1, 2]"
        assert [told.count(f"asks {prompt}") for prompt in ("a?", "b?")] == [1, 1]
        assert told.count("thinking") == told.count("heard") == 2


async def test_a_job_that_is_not_durable(autojump_clock: MockClock) -> None:
    """A restart ends a job that is not durable, and with it what the job has asked."""
    store = DurableStore()
    async with life(store) as (_, peer):
        job_id = (await peer.submit("forgetful", lease_request=MAY_ASK))["job_id"]
        question = await next_question(peer, job_id)
        left = copied(store)
    async with life(left) as (runtime, peer):
        assert await waiting(peer, job_id) == []
        with pytest.raises(JobNotFound):
            await answer(peer, question, 1)
        assert await history(runtime, job_id) == ["call a?", "asks a?", "INTERNAL_ERROR"]


class FaultyDurableStore(FaultyStore):
    """A durable store that fails."""

    durable = True


@pytest.mark.logs_error("store in trouble")
@pytest.mark.parametrize("applied", [False, True])
async def test_a_store_that_fails_once(autojump_clock: MockClock, *, applied: bool) -> None:
    """Whichever commit fails, applied all the same or not, the story is the same."""
    for number in range(3, 12):
        store = FaultyDurableStore(commit=number, applied=applied)
        async with (
            life(store) as (runtime, _),
            connect(partial(open_stream, runtime), token=TEST_TOKEN) as client,
        ):
            client.on_question(_answer)
            job = await client.submit("curious", QUESTIONS, lease=MAY_ASK)
            told = [in_short(event.kind, event.body) async for event in job.events()]
            assert [*told, str(await job.result())] == STORY
            assert store.failed


async def _answer(question: Question) -> None:
    if question.prompt != LATE:
        await question.answer(f"to {question.prompt}")


async def test_two_kills_in_a_row(autojump_clock: MockClock) -> None:
    """A run that is killed while it goes on changes nothing either, wherever both kills are."""
    store = Snapshots()
    async with life(store) as (runtime, peer):
        job_id = await begun(peer, *QUESTIONS)
        assert await story_of(runtime, job_id) == STORY
    for left in store.taken[2::3]:
        again = Snapshots.of(left)
        async with life(again) as (runtime, peer):
            await story_of(runtime, job_id)
        for twice in again.taken:
            async with life(twice) as (runtime, peer):
                told = await story_of(runtime, job_id)
                assert [each for each in told if not each.startswith("resumed")] == STORY
