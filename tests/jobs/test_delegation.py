"""Delegation: a child has part of its parent's lease, and ends with it at the latest (§10)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    AgentVersionNotAvailable,
    JobCancelled,
    JobContext,
    JobError,
    JobFailed,
    JobTimedOut,
    LeaseSubsetViolation,
    PermissionDenied,
    Runtime,
)
from arcp_trio.testing import Peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.jobs import doer
from tests.jobs.delegating import LEASE, agents, answers
from tests.reading import until_end


@pytest.fixture
def runtime(runtime: Runtime) -> Runtime:
    """A runtime that also has the agents that delegate."""
    runtime.add(agents)
    return runtime


def short(frame: Frame, names: Mapping[str, str]) -> str:
    """Describe a frame in a few words."""
    payload = frame["payload"]
    what = payload.get("kind", frame["type"])
    body = payload.get("body", {})
    return " ".join([names[frame["job_id"]], what, *([body["name"]] if "name" in body else [])])


@pytest.mark.spec("9.4-1", "1.0/10.3-1")
async def test_a_child_runs_in_the_same_session(peer: Peer, autojump_clock: MockClock) -> None:
    """The session gets `delegate`, then all of the child, then the parent's end."""
    accepted = await peer.submit(
        "boss",
        {"agent": "worker", "lease": {"tool.call": ["search.web"]}, "budget": {"USD": "2"}},
        lease_request=LEASE,
    )
    parent = accepted["job_id"]
    seen = await until_end(peer, parent)
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
    """The end of a parent cancels its child, whose terminal comes before the parent's."""
    accepted = await peer.submit("boss", {"agent": "sleeper", "wait": False}, lease_request=LEASE)
    seen = await until_end(peer, accepted["job_id"])
    assert [frame["type"] for frame in seen[-2:]] == ["job.error", "job.result"]
    assert seen[-2]["payload"]["final_status"] == "cancelled"


async def test_a_child_is_not_lost_on_a_client_that_was_away(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A client that was away finds the child's acceptance in its place among the events."""

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
        seen = await until_end(second, accepted["job_id"])
    assert [frame["payload"].get("kind", frame["type"]) for frame in seen][:4] == [
        "job.accepted",  # of the parent: after number 0, like the rest
        "delegate",
        "job.accepted",
        "log",
    ]


# -- what a child is


@pytest.mark.spec("11-2", "1.0/10.3-1")
async def test_a_child_is_its_parents_in_all_that_counts(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A child has its parent's principal and trace, and its own input, lease and limits."""
    seen: list[Json] = []

    @runtime.agent("child", version="2.1.0")
    async def child(job: JobContext) -> Json:
        job.input["list"].append("the child's own")
        seen.append(
            [job.principal, job.trace_id, job.parent_id, job.version, dict(job.lease), job.input]
        )
        assert job.deadline == trio.current_time() + 5

    @runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        given = {"list": ["given"]}
        made = await job.delegate("child@2.1.0", given, max_runtime=5)
        given["list"].append("later")
        await made.result()
        return [given, [job.principal, job.trace_id, job.id]]

    accepted = await peer.submit("parent", lease_request=LEASE)
    frames = await until_end(peer, accepted["job_id"])
    given, its = frames[-1]["payload"]["result"]
    assert given == {"list": ["given", "later"]}
    assert seen == [[*its, "2.1.0", {}, {"list": ["given", "the child's own"]}]]
    (born,) = [frame for frame in frames if frame["type"] == "job.accepted"]
    assert born["payload"]["agent"] == "child@2.1.0"
    assert born["trace_id"] == born["payload"]["trace_id"] == accepted["trace_id"]
    assert "request_id" not in born["payload"]
    assert {frame["trace_id"] for frame in frames} == {accepted["trace_id"]}


async def test_how_a_child_ended_is_told_to_its_parent(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A child's end raises the class of its code, which does not become the parent's own end."""

    @runtime.agent("failing")
    async def failing(job: JobContext) -> Json:
        raise JobError("out of paper", details={"tray": 2})

    @runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        made = await job.delegate("failing")
        for _ in range(2):
            with pytest.raises(JobFailed) as failed:
                await made.result()
            assert (failed.value.message, failed.value.details) == ("out of paper", {"tray": 2})
            assert failed.value.code == "INTERNAL_ERROR"
        timed = await job.delegate("sleeper", max_runtime=1)
        with pytest.raises(JobTimedOut):
            await timed.result()
        cancelled = await job.delegate("sleeper")
        await job.log(cancelled.id)
        with pytest.raises(JobCancelled, match="enough"):
            await cancelled.result()
        again = await job.delegate("sleeper", max_runtime=1)
        return await again.result()

    accepted = await peer.submit("parent", lease_request=LEASE)
    log = await peer.expect("job.event", kind="log")
    child_id = log["payload"]["body"]["message"]
    await peer.send("job.cancel", {"job_id": child_id, "reason": "enough"})
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert (end["final_status"], end["code"]) == ("error", "INTERNAL_ERROR")


@pytest.mark.spec("7.4-2")
async def test_a_delegation_that_is_cancelled_as_it_begins_is_answered(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A delegation that was announced gets a result, even if no child comes of it."""

    @runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        with trio.CancelScope() as scope:
            scope.cancel()
            await job.delegate("sleeper")
        return scope.cancelled_caught

    accepted = await peer.submit("parent", lease_request=LEASE)
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert end["result"] is True
    assert answers(peer, accepted["job_id"]) == ["CANCELLED"]


@pytest.mark.spec("7.4-2")
async def test_a_job_that_is_ending_begins_nothing(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A job within its grace cannot delegate; it is refused with the code of its own end."""

    @runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await job.delegate("sleeper")

    accepted = await peer.submit("parent", lease_request=LEASE)
    await peer.send("job.cancel", {"job_id": accepted["job_id"]})
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert end["final_status"] == "cancelled"
    assert answers(peer, accepted["job_id"]) == ["CANCELLED"]


async def test_the_classes_that_are_raised(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A refused delegation raises the class of its code, and names what exceeds the lease."""

    @runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        with pytest.raises(LeaseSubsetViolation, match="shell") as beyond:
            await job.delegate("doer", lease={"tool.call": ["shell.run"]})
        with pytest.raises(AgentVersionNotAvailable):
            await job.delegate("doer@7.0.0")
        with pytest.raises(PermissionDenied):
            await job.delegate("sleeper")
        return beyond.value.details

    accepted = await peer.submit(
        "parent", lease_request={"agent.delegate": ["doer"], "tool.call": ["search.*"]}
    )
    end, bodies = await doer.whole(peer, accepted["job_id"])
    beyond = {"beyond": [{"capability": "tool.call", "pattern": "shell.run"}]}
    assert end["result"] == beyond
    assert bodies[1]["error"]["details"] == beyond
