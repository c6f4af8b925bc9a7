"""Questions in the client library: iterating, a handler, listings, and answers that are refused."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    Client,
    InvalidRequest,
    JobContext,
    JobNotFound,
    Json,
    Policy,
    Question,
    QuestionHandler,
    Runtime,
    connect,
)
from arcp_trio.testing import open_pair
from arcp_trio.testing.pair import open_stream
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.features import ALL_FEATURES
from tests.questions.support import MAY_ASK, agents
from tests.stage import BOB, make_runtime


def runtime_that_asks() -> Runtime:
    """Return a runtime whose agents ask, with bob as an approver."""
    return make_runtime(agents, policy=Policy(approvers={"bob"}))


async def test_a_program_iterates_and_answers(autojump_clock: MockClock) -> None:
    """Each question comes once, with its fields, and its answer reaches the agent."""
    async with runtime_that_asks() as runtime, open_pair(runtime) as client:
        asks = [{"prompt": "a?", "options": ["x", "y"], "to": "Ann"}, {"prompt": "b?"}]
        job = await client.submit("crowd", asks, lease=MAY_ASK)
        seen: list[Question] = []
        async for question in job.questions():
            seen.append(question)
            await question.answer("x")
        a, b = seen
        assert (a.job_id, a.prompt, a.options, a.to) == (job.id, "a?", ["x", "y"], "Ann")
        assert (b.prompt, b.options, b.schema, b.to, b.expires_at) == ("b?", None, None, None, None)
        assert (a.wants_text, b.wants_text) == (True, False)
        assert await job.result() == {"a?": "x", "b?": "x"}
        kinds = [event.kind async for event in job.events()]
        assert kinds.count("x-vendor.arcp-trio.question") == 2
        assert [each async for each in job.questions()] == []


async def test_an_iteration_has_only_open_questions(autojump_clock: MockClock) -> None:
    """Questions that are over by then are left out; the iteration ends with the job."""
    async with runtime_that_asks() as runtime, open_pair(runtime) as client:
        asks = [{"prompt": "short?", "expires_in": 1}, {"prompt": "long?"}]
        job = await client.submit("crowd", asks, lease=MAY_ASK)
        await trio.sleep(2)
        questions = job.questions()
        long = await anext(questions)
        assert long.prompt == "long?"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(job.cancel)
            with pytest.raises(StopAsyncIteration):
                await anext(questions)


async def test_a_handler_is_called_with_each_question(autojump_clock: MockClock) -> None:
    """The handler gets questions that are open already, and those to come, each in its own task."""
    async with runtime_that_asks() as runtime, open_pair(runtime) as client:
        asks = [{"prompt": f"{n}?"} for n in range(3)]
        early = await client.submit("crowd", asks, lease=MAY_ASK)
        await trio.sleep(1)
        at_once = 0

        @client.on_question
        async def answer_later(question: Question) -> None:
            nonlocal at_once
            at_once += 1
            await trio.sleep(1)
            await question.answer(f"to {question.prompt}")

        late = await client.submit("asker", {"prompt": "late?"}, lease=MAY_ASK)
        await trio.sleep(0.5)
        assert at_once == 4
        assert await early.result() == {f"{n}?": f"to {n}?" for n in range(3)}
        assert await late.result() == {"answer": "to late?"}


async def test_a_handler_is_cancelled_once_its_question_is_over(autojump_clock: MockClock) -> None:
    """Answered elsewhere, timed out, or with the end of its job: the handler's task ends."""
    async with (
        runtime_that_asks() as runtime,
        open_pair(runtime) as client,
        open_pair(runtime) as other,
    ):
        ended: list[str] = []

        async def wait(question: Question) -> None:
            try:
                await trio.sleep_forever()
            finally:
                ended.append(question.prompt)

        client.on_question(wait)
        asks = [{"prompt": "answered?"}, {"prompt": "late?", "expires_in": 20}, {"prompt": "end?"}]
        job = await client.submit("crowd", asks, lease=MAY_ASK)
        await trio.sleep(1)
        async for listed in other.jobs():
            await listed.waiting[0].answer(1)
        await trio.sleep(1)
        assert ended == ["answered?"]
        await trio.sleep(20)
        assert ended == ["answered?", "late?"]
        await job.cancel()
        await trio.sleep(1)
        assert ended == ["answered?", "late?", "end?"]


async def test_a_handler_that_raises_ends_the_block(autojump_clock: MockClock) -> None:
    """What a handler raises leaves the block of `connect` as itself."""
    async with runtime_that_asks() as runtime:
        with pytest.raises(ZeroDivisionError):
            await _ask_and_wait(runtime, _fail)


async def _ask_and_wait(runtime: Runtime, handler: QuestionHandler) -> None:
    async with open_pair(runtime) as client:
        client.on_question(handler)
        await client.submit("asker", {"prompt": "?"}, lease=MAY_ASK)
        await trio.sleep_forever()


async def _fail(_question: Question) -> None:
    raise ZeroDivisionError


async def test_leaving_ends_the_handlers(autojump_clock: MockClock) -> None:
    """The block of `connect` can be left while a handler waits for a person."""
    async with runtime_that_asks() as runtime:
        with trio.fail_after(10):
            async with open_pair(runtime) as client:
                client.on_question(_wait)
                await client.submit("asker", {"prompt": "?"}, lease=MAY_ASK)
                await trio.sleep(1)


async def _wait(_question: Question) -> None:
    await trio.sleep_forever()


async def test_a_question_that_nothing_in_the_program_answers(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that waits for its job is told of the question, once, and of what helps."""
    async with (
        runtime_that_asks() as runtime,
        open_pair(runtime) as client,
        open_pair(runtime) as other,
    ):
        job = await client.submit("asker", {"prompt": "Go\non?"}, lease=MAY_ASK)
        observed = await other.subscribe(job.id, history=True)
        with trio.move_on_after(60):
            await job.result()
        (told,) = (record.getMessage() for record in caplog.records)
        assert f"{job.id} waits for an answer to 'Go\\non?'" in told
        for help_ in ("client.on_question", "job.questions()", f"arcp-trio answer {job.id}"):
            assert help_ in told
        await (await anext(observed.questions())).answer("yes")
        assert await job.result() == {"answer": "yes"}
        caplog.clear()
        await _answer_in_time(client)
    assert not caplog.records


async def _answer_in_time(client: Client) -> None:
    """Answer by an iteration, by nobody before the question is over, and by a handler."""
    job = await client.submit("asker", {"prompt": "iterated?"}, lease=MAY_ASK)
    async for question in job.questions():
        await trio.sleep(5)
        await question.answer("yes")
    quick = await client.submit("impatient", 0.1, lease=MAY_ASK)
    assert await quick.result() == "left"
    client.on_question(_say_yes_later)
    job = await client.submit("asker", {"prompt": "handled?"}, lease=MAY_ASK)
    assert await job.result() == {"answer": "yes"}


async def _say_yes_later(question: Question) -> None:
    await trio.sleep(5)
    await question.answer("yes")


async def test_an_approver_finds_questions_in_a_listing(autojump_clock: MockClock) -> None:
    """A listed job has its open questions, which can be answered from there."""
    async with (
        runtime_that_asks() as runtime,
        open_pair(runtime) as client,
        open_pair(runtime, token=BOB) as approver,
    ):
        job = await client.submit("asker", {"prompt": "Go?"}, lease=MAY_ASK)
        await trio.sleep(1)
        (info,) = [info async for info in approver.jobs()]
        (question,) = info.waiting
        with pytest.raises(ValueError, match="set is not a JSON value"):
            await question.answer({1, 2})
        await question.answer("yes")
        assert await job.result() == {"answer": "yes"}
        assert [info.waiting async for info in approver.jobs()] == [[]]
        with pytest.raises(JobNotFound):
            await question.answer("no")


async def test_without_the_feature(autojump_clock: MockClock) -> None:
    """A client that has not negotiated questions is told so before it waits for ever."""
    async with runtime_that_asks() as runtime:
        target = partial(open_stream, runtime)
        async with connect(target, token=TEST_TOKEN, features=ALL_FEATURES) as client:
            job = await client.submit("asker", {"prompt": "?"}, lease=MAY_ASK)
            with pytest.raises(InvalidRequest, match="not negotiated"):
                job.questions()
            with pytest.raises(InvalidRequest, match="not negotiated"):
                client.on_question(_never)


async def _never(_question: Question) -> None:
    raise AssertionError


async def test_many_unread_events_keep_no_question_away(autojump_clock: MockClock) -> None:
    """A program that takes no events gets its questions all the same."""
    async with runtime_that_asks() as runtime, open_pair(runtime) as client:
        await talk_then_ask(runtime, client)


async def _talk(job: JobContext) -> Json:
    for number in range(25_000):
        await job.log(f"line {number}")
    return await job.ask("Enough?")


async def _say_yes(question: Question) -> None:
    await question.answer("yes")


async def talk_then_ask(runtime: Runtime, client: Client) -> None:
    """Have a job emit more than a client keeps, and then ask; answer it by a handler."""
    runtime.agent("talker")(_talk)
    client.on_question(_say_yes)
    job = await client.submit("talker", lease=MAY_ASK)
    answered = False
    while not answered:
        await trio.sleep(1)
        answered = [info.status async for info in client.jobs()] == ["success"]
    assert job.terminal is not None
