"""An agent that asks what its input says, and how a test's client answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import ClassVar

import trio

from arcp_trio import Agents, ArcpError, JobContext, Json, MemoryStore, Policy
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.stage import Stage, stubborn_agents

ANSWER = "x-vendor.arcp-trio.answer"
ANSWERED = "x-vendor.arcp-trio.answered"
QUESTION = "x-vendor.arcp-trio.question"
WAITING = "x-vendor.arcp-trio.waiting"
QUESTIONS = "x-vendor.arcp-trio.questions"
UNKNOWN = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV"
MAY_ASK = {"tool.call": ["human.ask"]}

agents = Agents()


@agents.agent("asker")
async def asker(job: JobContext) -> Json:
    """Ask what the input says, and return the answer, or the code of the error."""
    try:
        return {"answer": await job.ask(**job.input)}
    except ArcpError as error:
        return {"code": error.code, "class": type(error).__name__, "details": error.details}
    except (ValueError, TypeError) as error:
        return {"class": type(error).__name__, "text": str(error)}


@agents.agent("trusting")
async def trusting(job: JobContext) -> Json:
    """Ask, and catch nothing."""
    return await job.ask(**job.input)


@agents.agent("crowd")
async def crowd(job: JobContext) -> Json:
    """Ask all that the input lists at once, and return the answers by prompt."""
    answers: dict[str, Json] = {}

    async def ask(question: Json) -> None:
        try:
            name = question["prompt"][:200]
            answers[question["prompt"]] = await job.ask(**{"name": name, **question})
        except ArcpError as error:
            answers[question["prompt"]] = error.details.get("limit", error.code)

    async with trio.open_nursery() as nursery:
        for question in job.input:
            nursery.start_soon(ask, question)
            await trio.testing.wait_all_tasks_blocked()
    return answers


@agents.agent("impatient")
async def impatient(job: JobContext) -> Json:
    """Ask, and return after the seconds that the input says, whether or not there is an answer."""
    with trio.move_on_after(job.input):
        return await job.ask("Quick?")
    return "left"


@agents.agent("shielded")
async def shielded(job: JobContext) -> Json:
    """Ask, and wait for the answer also when the job is to end; then ask once more."""
    with trio.CancelScope(shield=True):
        try:
            await job.ask("Now?", expires_in=5)
        except ArcpError as error:
            await job.log(error.code)
        try:
            await job.ask("And now?")
        except ArcpError as error:
            await job.log(error.code)


class AskingStage(Stage[MemoryStore]):
    """A runtime whose agents ask, and whose clients know questions."""

    features: ClassVar = CLIENT_FEATURES

    @classmethod
    @asynccontextmanager
    async def asking(cls, **options: Json) -> AsyncGenerator[AskingStage]:
        """Run one, with an observer and an approver beside alice."""
        policy = Policy(observers={"auditor"}, approvers={"bob"})
        options = {"policy": policy, "operators": ["operator"], **options}
        async with cls.open(MemoryStore(), **options) as stage:
            stage.runtime.add(agents)
            stage.runtime.add(stubborn_agents)
            yield stage


async def asked(peer: Peer, **question: Json) -> Frame:
    """Have a job ask; return the body of its question, with the job's id."""
    job = await peer.submit("asker", {"prompt": "Publish?", **question}, lease_request=MAY_ASK)
    return await next_question(peer, job["job_id"])


async def next_question(peer: Peer, job_id: str) -> Frame:
    """Return the body of the next question of a job, with the job's id."""
    while True:
        event = await peer.expect("job.event", job_id=job_id)
        if event["payload"]["kind"] == QUESTION:
            return {**event["payload"]["body"], "job_id": job_id}


async def answer(peer: Peer, question: Frame, value: Json, **more: Json) -> Frame:
    """Answer a question, and return the payload of what the runtime says to that."""
    ids = {name: question[name] for name in ("job_id", "question_id")}
    request = await peer.send(ANSWER, {**ids, "answer": value, **more})
    said = await peer.answer(ANSWERED, request)
    assert said == {"request_id": request, **ids}
    return said


async def outcome(peer: Peer, job_id: str) -> Json:
    """Return what a job's agent returned."""
    return (await peer.until_terminal(job_id))["payload"]["result"]


async def listed(peer: Peer, job_id: str) -> Json:
    """Return the questions that a listing says a job waits with; None if it says nothing."""
    request = await peer.send("session.list_jobs", {})
    for entry in (await peer.answer("session.jobs", request))["jobs"]:
        if entry["job_id"] == job_id:
            return entry.get(WAITING)
    raise AssertionError(f"{job_id} is not listed")
