"""A durable agent that asks, and runtimes that are killed and started again over what it stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import trio

from arcp_trio import (
    Agents,
    ArcpError,
    JobContext,
    Json,
    Limits,
    MemoryStore,
    Policy,
    Runtime,
    Unanswered,
)
from arcp_trio.store.writes import Write
from arcp_trio.testing import Peer, open_peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.durability.stores import copy_into
from tests.durable.stage import DurableStore
from tests.jobs.doer import SteppedClock
from tests.questions.support import MAY_ASK, QUESTION, WAITING, answer
from tests.stage import make_runtime, simple_agents, stubborn_agents

agents: Final = Agents()

LATE: Final = "Late?"
"""A question that nobody answers."""


@agents.agent("curious", durable=True)
async def curious(job: JobContext) -> Json:
    """Ask what the input lists, one after the other, and return the answers."""
    await job.log("begun")
    answers: list[Json] = []
    for question in job.input:
        try:
            answers.append(await job.ask(**question))
        except Unanswered:
            answers.append("nobody")
        await job.log(f"{len(answers)} answered")
    return answers


@agents.agent("stepper", durable=True)
async def stepper(job: JobContext) -> Json:
    """Ask inside of a step, with words before and after the question."""

    async def talk() -> Json:
        await job.log("thinking")
        answer = await job.ask("a?")
        await job.log("heard")
        return [answer, await job.ask("b?")]

    return await job.step("talk", talk)


@agents.agent("stubborn-asker", durable=True)
async def stubborn_asker(job: JobContext) -> Json:
    """Ask, and wait for the answer also when the job is suspended."""
    with trio.CancelScope(shield=True):
        try:
            return await job.ask(LATE, expires_in=10)
        except Unanswered:
            return "nobody"


@agents.agent("sender", durable=True)
async def sender(job: JobContext) -> Json:
    """Do in each way what people have to allow, and return how it went."""

    async def send(to: str) -> str:
        await job.sleep(1)
        return f"sent to {to}"

    async def talk() -> str:
        async with job.tool_call("mail.draft", 1):
            await trio.sleep(1)
        return "drafted"

    async with job.tool_call("mail.send", 1) as call:
        call.result = "sent"
    done = [call.result, await job.call_tool("mail.send", send, to="ada")]
    done.append(await job.step("talk", talk))
    try:
        await job.call_tool("mail.delete", send, to="bob")
    except ArcpError as error:
        done.append(error.code)
    await job.authorize_or_ask("net.fetch", "https://h.example/a")
    child = await job.delegate("echo", "to the child")
    done.append(await child.result())
    for _ in range(2):
        async with job.tool_call("mail.ping"):
            await trio.sleep(1)
    return done


@agents.agent("poster", durable=True)
async def poster(job: JobContext) -> Json:
    """Send two letters, each if people allow it; return how it went."""
    done: list[Json] = []
    for to in ("eve", "ada"):
        try:
            async with job.tool_call("mail.send", {"to": to}):
                done.append(to)
        except ArcpError as error:
            done.append(error.code)
    await job.sleep(10)
    return done


@agents.agent("patient", durable=True)
async def patient(job: JobContext) -> str:
    """Ask for what nobody decides on, and go on after that."""
    code = "nothing"
    try:
        async with job.tool_call("mail.send"):
            pass
    except ArcpError as error:
        code = error.code
    await job.sleep(10)
    return code


@agents.agent("fickle", durable=True)
async def fickle(job: JobContext) -> None:
    """Do in each run something else at the same place."""
    async with job.tool_call("mail.send", job.input + str(job.run)):
        await trio.sleep(10)


@agents.agent("forgetful")
async def forgetful(job: JobContext) -> Json:
    """Ask, in a job that is not durable."""
    return await job.ask("a?")


class Snapshots(DurableStore):
    """A store that keeps a copy of what is committed after each group."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[DurableStore] = []

    @classmethod
    def of(cls, store: DurableStore) -> Snapshots:
        """Return one with what is in another store."""
        return copy_into(cls(), store)

    async def _commit(self, writes: Sequence[Write]) -> None:
        await super()._commit(writes)
        self.taken.append(copied(self))


def copied(store: MemoryStore) -> DurableStore:
    """Return what is stored now, as the next process finds it if this one is killed."""
    return copy_into(DurableStore(), store)


@asynccontextmanager
async def life(
    store: MemoryStore, limits: Limits | None = None
) -> AsyncGenerator[tuple[Runtime, Peer]]:
    """Run a runtime over a store for the length of the block, with a client of alice's."""
    runtime = make_runtime(
        agents,
        simple_agents,
        stubborn_agents,
        store=store,
        clock=SteppedClock(),
        limits=limits,
        policy=Policy(approvers={"bob"}, observers={"auditor"}),
        operators=["operator"],
    )
    async with runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello(features=tuple(CLIENT_FEATURES))
        yield runtime, peer


async def begun(peer: Peer, *questions: Frame) -> str:
    """Submit a job that asks these questions, and return its id."""
    accepted = await peer.submit("curious", list(questions), lease_request=MAY_ASK)
    return str(accepted["job_id"])


async def waiting(peer: Peer, job_id: str) -> list[Frame]:
    """Return what a job asks, as a listing has it, with the job's id."""
    request = await peer.send("session.list_jobs", {})
    for entry in (await peer.answer("session.jobs", request))["jobs"]:
        if entry["job_id"] == job_id:
            asked = entry.get(WAITING, {"questions": []})["questions"]
            return [{**question, "job_id": job_id} for question in asked]
    return []


async def history(runtime: Runtime, job_id: str) -> list[str]:
    """Follow a job from its first event to its end; return all that was told, in short."""
    async with open_peer(runtime) as peer:
        await peer.hello(features=tuple(CLIENT_FEATURES))
        peer.patience = 1_000
        request = await peer.send("job.subscribe", {"job_id": job_id, "history": True})
        await peer.answer("job.subscribed", request)
        end = await peer.until_terminal(job_id)
        events = [frame for frame in peer.seen if frame["type"] == "job.event"]
        result = end["payload"].get("result", end["payload"].get("code"))
        bodies = [frame["payload"] for frame in events]
        return [*(in_short(each["kind"], each["body"]) for each in bodies), str(result)]


def in_short(kind: str, body: Json) -> str:
    """Return an event in a few words."""
    match kind:
        case "log":
            return str(body["message"])
        case "status":
            return f"{body['phase']} {body.get('run', body['message'])}"
        case "tool_call":
            args = body.get("args")
            return f"call {args['prompt'] if body['tool'] == 'human.ask' else body['tool']}"
        case "tool_result":
            return body["error"]["code"] if "error" in body else str(body["result"])
        case _:
            return f"asks {body['prompt']}" if kind == QUESTION else kind


async def decided(runtime: Runtime, job_id: str) -> None:
    """Decide what a job asks people to allow, until cancelled."""
    async with open_peer(runtime) as peer:
        await peer.hello(features=tuple(CLIENT_FEATURES))
        while True:
            for question in await waiting(peer, job_id):
                (target,) = question["targets"]
                scope = {"scope": "job"} if target == "mail.ping" else {}
                said = "deny" if target == "mail.delete" else "allow"
                await answer(peer, question, said, **scope)
            await trio.sleep(0.5)


async def answered(runtime: Runtime, job_id: str) -> None:
    """Answer what a job asks, each with its own words, until cancelled; not what is `LATE`."""
    async with open_peer(runtime) as peer:
        await peer.hello(features=tuple(CLIENT_FEATURES))
        while True:
            for question in await waiting(peer, job_id):
                if question["prompt"] != LATE:
                    await answer(peer, question, f"to {question['prompt']}")
            await trio.sleep(0.5)
