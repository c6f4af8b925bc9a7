"""Delegation: a child has part of its parent's lease, and ends with it at the latest (§10)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, ArcpError, JobContext, Runtime
from arcp_trio.testing import Peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json, JsonObject
from tests.jobs.runtimes import make_runtime

LEASE: JsonObject = {
    "agent.delegate": ["*"],
    "tool.call": ["search.*"],
    "cost.budget": ["USD:5.00"],
}


agents = Agents()


@agents.agent("boss")
async def boss(job: JobContext) -> Json:
    """Delegate what the input says, and tell what came of it."""
    asked: JsonObject = dict(job.input)
    wait = asked.pop("wait", True)
    for name, value in asked.pop("spend", {}).items():
        await job.metric("cost.own", value, unit=name)
    try:
        child = await job.delegate(**asked)
        return await child.result() if wait else child.id
    except ArcpError as error:
        return {"refused": error.code}


@agents.agent("worker")
async def worker(job: JobContext) -> Json:
    """A few events of each kind."""
    await job.log("at work")
    async with job.tool_call("search.web") as call:
        call.result = {"lease": dict(job.lease)}
    await job.metric("cost.work", 0.5, unit="USD")
    return {"parent": job.parent_id, "trace": job.trace_id}


@pytest.fixture
async def runtime() -> AsyncGenerator[Runtime, None]:
    """A runtime with these agents, too."""
    async with make_runtime() as entered:
        entered.add(agents)
        yield entered


async def frames_until(peer: Peer, job_id: str) -> list[Frame]:
    """Everything up to a job's terminal."""
    seen: list[Frame] = []
    while True:
        seen.append(await peer.receive())
        if seen[-1].get("job_id") == job_id and seen[-1]["type"] in ("job.result", "job.error"):
            return seen


def short(frame: Frame, names: Mapping[str, str]) -> str:
    """A frame in a few words."""
    payload = frame["payload"]
    what = payload.get("kind", frame["type"])
    body = payload.get("body", {})
    return " ".join([names[frame["job_id"]], what, *([body["name"]] if "name" in body else [])])


@pytest.mark.spec("9.4-1", "1.0/10.3-1")
async def test_a_child_runs_in_the_same_session(peer: Peer, autojump_clock: MockClock) -> None:
    """`delegate`, the child's acceptance, its events and its end, then the parent's."""
    accepted = await peer.submit(
        "boss",
        {"agent": "worker", "lease": {"tool.call": ["search.web"]}, "budget": {"USD": "2"}},
        lease_request=LEASE,
    )
    parent = accepted["job_id"]
    seen = await frames_until(peer, parent)
    child = next(frame for frame in seen if frame["type"] == "job.accepted")
    names = {parent: "parent", child["job_id"]: "child"}
    assert [short(frame, names) for frame in seen] == [
        "parent delegate",
        "child job.accepted",
        "child log",
        "child tool_call",
        "child tool_result",
        "child metric cost.work",
        "child metric cost.budget.remaining",
        "parent metric cost.budget.remaining",
        "child job.result",
        "parent job.result",
    ]
    assert child["payload"]["parent_job_id"] == parent
    assert child["payload"]["delegate_id"] == seen[0]["payload"]["body"]["delegate_id"]
    assert child["payload"]["lease"] == {"tool.call": ["search.web"], "cost.budget": ["USD:2"]}
    assert child["payload"]["budget"] == {"USD": 2}
    assert seen[-1]["payload"]["result"] == {"parent": parent, "trace": accepted["trace_id"]}
    assert seen[7]["payload"]["body"]["value"] == 4.5


async def test_the_end_of_a_parent_ends_its_children(peer: Peer, autojump_clock: MockClock) -> None:
    """The child is cancelled and says so before its parent's terminal."""
    accepted = await peer.submit("boss", {"agent": "sleeper", "wait": False}, lease_request=LEASE)
    seen = await frames_until(peer, accepted["job_id"])
    assert [frame["type"] for frame in seen[-2:]] == ["job.error", "job.result"]
    assert seen[-2]["payload"]["final_status"] == "cancelled"


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"lease": {"tool.call": ["*"]}}, "LEASE_SUBSET_VIOLATION"),
        ({"lease": {"fs.read": ["/a"]}}, "LEASE_SUBSET_VIOLATION"),
        ({"budget": {"USD": "5.01"}}, "LEASE_SUBSET_VIOLATION"),
        ({"budget": {"USD": "2.01"}, "spend": {"USD": 3}}, "LEASE_SUBSET_VIOLATION"),
        ({"spend": {"USD": 5}}, "BUDGET_EXHAUSTED"),
        ({"lease": {"nonsense": ["/a"]}}, "INVALID_REQUEST"),
        ({"agent": "nobody"}, "AGENT_NOT_AVAILABLE"),
    ],
)
async def test_a_refused_delegation_is_a_tool_result(
    peer: Peer, autojump_clock: MockClock, asked: JsonObject, code: str
) -> None:
    """Under the delegation's own id; the same is raised, and the parent goes on."""
    accepted = await peer.submit("boss", {"agent": "worker"} | asked, lease_request=LEASE)
    seen = await frames_until(peer, accepted["job_id"])
    bodies = [frame["payload"].get("body", {}) for frame in seen]
    (delegate_id,) = [body["delegate_id"] for body in bodies if "delegate_id" in body]
    (error,) = [body["error"] for body in bodies if body.get("call_id") == delegate_id]
    assert error["code"] == code
    assert seen[-1]["payload"]["result"] == {"refused": code}


async def test_a_child_is_not_lost_on_a_client_that_was_away(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """The acceptance has its place among the parent's events, whenever they are read."""

    @runtime.agent("late")
    async def late(job: JobContext) -> Json:
        await trio.sleep(10)
        child = await job.delegate("worker", lease={"tool.call": ["search.web"]})
        return await child.result()

    async with open_peers(runtime) as peers:
        first = await peers.connect()
        await first.hello()
        accepted = await first.submit("late", lease_request=LEASE)
        await first.drop()
        await trio.sleep(60)
        second = await peers.connect()
        await second.hello(resume=first.resume_from())
        seen = await frames_until(second, accepted["job_id"])
    assert [frame["payload"].get("kind", frame["type"]) for frame in seen][:4] == [
        "job.accepted",  # of the parent: behind number 0, like the rest
        "delegate",
        "job.accepted",
        "log",
    ]
