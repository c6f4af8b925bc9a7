"""Jobs that jobs of another node delegate to: what they say comes where it belongs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from arcp_trio import Agents, JobContext, Json, Limits
from arcp_trio.runtime.cluster.following import SETTLE_SECONDS
from arcp_trio.store.postgres._wake_ups import WakeUps
from arcp_trio.testing.frames import Frame
from tests.cluster.audit import audit
from tests.cluster.side_by_side import nodes_over
from tests.cluster.tellers import SECONDS, moved, quiet

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

CHILDREN = 30
MAY_DELEGATE = {"agent.delegate": ["*"]}

agents = Agents()


@agents.agent("family")
async def family(job: JobContext) -> Json:
    """Have children, one after the other, each with a word before and after it."""
    for number in range(job.input):
        await job.log(f"before {number}")
        child = await job.delegate("member", number)
        await child.result()
        await job.log(f"after {number}")
    return None


@agents.agent("member")
async def member(job: JobContext) -> Json:
    """Say three words."""
    for word in range(3):
        await job.log(f"{job.input}.{word}")
    return job.input


@agents.agent("ancestor")
async def ancestor(job: JobContext) -> Json:
    """Have a family that takes its time, and end with it."""
    child = await job.delegate("slow-family", lease=MAY_DELEGATE)
    return await child.result()


@agents.agent("slow-family")
async def slow_family(job: JobContext) -> Json:
    """Have a child that takes its time, and end with it."""
    child = await job.delegate("slow-member")
    return await child.result()


@agents.agent("slow-member")
async def slow_member(job: JobContext) -> Json:
    """Say a word, and more when its followers have read that."""
    await job.log("hello")
    await trio.sleep(5 * SETTLE_SECONDS)
    await job.log("goodbye")
    return "member"


def told(frames: Sequence[Frame]) -> list[Json]:
    """Return what jobs have said and what they have ended with, in the order in which it came."""
    said = list[Json]()
    for frame in frames:
        if frame["type"] == "job.event" and frame["payload"]["kind"] == "log":
            said.append(frame["payload"]["body"]["message"])
        elif frame["type"] == "job.result":
            said.append(frame["payload"].get("result"))
    return said


def due() -> list[Json]:
    """Return what a family says, in its order."""
    words = list[Json]()
    for number in range(CHILDREN):
        words += [f"before {number}", *(f"{number}.{word}" for word in range(3)), number]
        words.append(f"after {number}")
    return [*words, None]


@pytest.mark.parametrize("client", ["there", "away"])
async def test_a_tree_is_told_in_its_order(database: str, client: str) -> None:
    """A session has all of a tree of another node in the order in which its jobs have said it.

    It makes no difference whether the client is there meanwhile, or comes when all is over.
    """
    limits = Limits(follow_seconds=1)
    with trio.fail_after(SECONDS):
        async with nodes_over(database, others=[agents], limits=limits) as (one, two):
            peer = await quiet(one)
            job = await peer.submit("family", CHILDREN, lease_request=MAY_DELEGATE)
            if client == "away":
                await peer.drop()
                watcher = await quiet(one)
                request = await watcher.send("job.subscribe", {"job_id": job["job_id"]})
                await watcher.answer("job.subscribed", request)
                await watcher.until_terminal(job["job_id"])
                await one.store.flushed()
            peer = await moved(peer, two)
            frames = list[Frame]()
            while not (frames and is_end(frames[-1], job["job_id"])):
                frames.append(await peer.receive())
            assert told(frames) == due()
        await trio.to_thread.run_sync(audit, database)


async def test_only_the_oldest_is_said_to_have_moved(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at a job is one at its whole tree: a lost wake-up costs time, but not the order."""
    hear = WakeUps._hear

    def hear_of_the_oldest(wake_ups: WakeUps, payload: str) -> None:
        oldest = {"1"} & set(payload.split())  # the key of the first job of the database
        hear(wake_ups, " ".join(oldest))

    with trio.fail_after(SECONDS):
        async with nodes_over(database, others=[agents]) as (one, two):
            peer = await quiet(one)
            job = await peer.submit("ancestor", lease_request=MAY_DELEGATE)
            await peer.expect("job.event")
            monkeypatch.setattr(WakeUps, "_hear", hear_of_the_oldest)
            peer = await moved(peer, two)
            frames = list[Frame]()
            while not (frames and is_end(frames[-1], job["job_id"])):
                frames.append(await peer.receive())
            assert told(frames) == ["hello", "goodbye", "member", "member", "member"]


def is_end(frame: Frame, job_id: str) -> bool:
    """Return whether a frame is the terminal of a job."""
    return frame["type"] == "job.result" and bool(frame["job_id"] == job_id)
