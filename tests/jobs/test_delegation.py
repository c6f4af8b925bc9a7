"""Delegation: a child has part of its parent's lease, and ends with it at the latest (§10)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    Agents,
    AgentVersionNotAvailable,
    ArcpError,
    InternalError,
    InvalidEvent,
    JobCancelled,
    JobContext,
    JobError,
    JobFailed,
    JobTimedOut,
    LeaseSubsetViolation,
    Limits,
    PermissionDenied,
    Runtime,
)
from arcp_trio.testing import Peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json, JsonObject
from tests.jobs import doer
from tests.jobs.doer import until_terminal
from tests.jobs.runtimes import BOB, make_runtime

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
        entered.add(doer.agents)
        yield entered


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
    seen = await until_terminal(peer, parent)
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
    seen = await until_terminal(peer, accepted["job_id"])
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
    seen = await until_terminal(peer, accepted["job_id"])
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
        seen = await until_terminal(second, accepted["job_id"])
    assert [frame["payload"].get("kind", frame["type"]) for frame in seen][:4] == [
        "job.accepted",  # of the parent: behind number 0, like the rest
        "delegate",
        "job.accepted",
        "log",
    ]


# -- what is refused


def answers(peer: Peer, job_id: str) -> list[str]:
    """What each of a job's delegations came to: the code of its refusal, or "accepted"."""
    events = [frame["payload"] for frame in peer.recorder.events(job_id)]
    errors = {
        body["call_id"]: body["error"]["code"]
        for event in events
        if "error" in (body := event["body"])
    }
    delegations = [event["body"] for event in events if event["kind"] == "delegate"]
    return [errors.get(body["delegate_id"], "accepted") for body in delegations]


async def ask(peer: Peer, *asked: JsonObject, **fields: Json) -> list[str]:
    """Have a job delegate these, one after the other, and see what each came to."""
    steps: list[Json] = [["delegate", one] for one in asked]
    accepted = await peer.submit("doer", steps, **fields)
    await peer.until_terminal(accepted["job_id"])
    return answers(peer, accepted["job_id"])


@pytest.mark.spec("9.3-2", "10-1")
@pytest.mark.parametrize("lease", [{}, {"agent.delegate": ["other"]}, {"tool.call": ["**"]}])
async def test_to_delegate_needs_a_grant(
    peer: Peer, lease: JsonObject, autojump_clock: MockClock
) -> None:
    """`agent.delegate` for that agent's name, whichever version."""
    for agent in ("doer", "doer@1.0.0"):
        asked: JsonObject = {"agent": agent, "input": []}
        assert await ask(peer, asked, lease_request=lease) == ["PERMISSION_DENIED"]


async def test_a_version_needs_no_grant_of_its_own(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """The grant is for the name; the version is resolved as a submit's is."""
    lease: JsonObject = {"agent.delegate": ["doer"]}
    asked: list[JsonObject] = [
        {"agent": "doer@1.0.0", "input": []},
        {"agent": "doer@9.9.9", "input": []},
        {"agent": "do er", "input": []},
    ]
    assert await ask(peer, *asked, lease_request=lease) == [
        "accepted",
        "AGENT_VERSION_NOT_AVAILABLE",
        "INVALID_REQUEST",
    ]


@pytest.mark.spec("9.4-1", "9.4-2", "9.4-8", "9.4-9", "1.0/9.4-1", "1.0/10.2-1")
@pytest.mark.parametrize(
    ("parent", "child", "accepted"),
    [
        ({"fs.read": ["/a/**"]}, {"fs.read": ["/a/**"]}, True),
        ({"fs.read": ["/a/**"]}, {"fs.read": ["/a/b/*", "/a/b/c"]}, True),
        ({"fs.read": ["/a/*"]}, {"fs.read": ["/a/**"]}, False),
        ({"fs.read": ["/a/**"]}, {"fs.read": ["/a/**", "/b"]}, False),
        ({"fs.read": ["/a/**"]}, {"fs.write": ["/a/b"]}, False),
        ({"model.use": ["tier-*/sonnet"]}, {"model.use": ["tier-fast/opus"]}, False),
        ({"model.use": ["tier-*/sonnet"]}, {"model.use": ["tier-fast/sonnet"]}, True),
        ({"model.use": ["gpt-*o"]}, {"model.use": ["gpt-5"]}, False),
        ({"model.use": ["tier-fast/*-preview/*"]}, {"model.use": ["tier-fast/*/x"]}, False),
        ({"tool.call": ["search.*"]}, {"tool.call": ["search.web"]}, True),
        ({"tool.call": ["search.*"]}, {"tool.call": [""]}, False),
        ({}, {}, True),
    ],
    ids=str,
)
async def test_a_child_has_no_more_than_its_parent(
    peer: Peer, parent: JsonObject, child: JsonObject, *, accepted: bool, autojump_clock: MockClock
) -> None:
    """What is provably a part is accepted; all else is refused, and nothing is begun."""
    lease = {"agent.delegate": ["*"]} | parent
    (came_to,) = await ask(
        peer, {"agent": "doer", "input": [], "lease": child}, lease_request=lease
    )
    malformed = child == {"tool.call": [""]}
    refusal = "INVALID_REQUEST" if malformed else "LEASE_SUBSET_VIOLATION"
    assert came_to == ("accepted" if accepted else refusal)
    assert sum(frame["type"] == "job.accepted" for frame in peer.seen) == (1 if accepted else 0)


@pytest.mark.spec("9.4-3", "9.4-4", "10-2", "9.6-1")
@pytest.mark.parametrize(
    ("amounts", "came_to"),
    [
        (["2.00"], "accepted"),
        (["2.01"], "LEASE_SUBSET_VIOLATION"),
        (["3"], "LEASE_SUBSET_VIOLATION"),
        (["-1"], "INVALID_REQUEST"),
        (["1e0"], "INVALID_REQUEST"),
        (["NaN"], "INVALID_REQUEST"),
        ([1.5], "accepted"),
        ([float("nan")], "INVALID_REQUEST"),
    ],
)
async def test_a_childs_budget_is_at_most_what_is_left(
    peer: Peer, runtime: Runtime, amounts: list[Json], came_to: str, autojump_clock: MockClock
) -> None:
    """Of 5.00 with 3.00 spent a child gets up to 2.00, whatever the parent was given."""

    @runtime.agent("spender")
    async def spender(job: JobContext) -> Json:
        await job.metric("cost.x", 3, unit="USD")
        try:
            await job.delegate("doer", [], budget={"USD": amounts[0]})
        except ArcpError as error:
            return error.code
        return "accepted"

    accepted = await peer.submit("spender", lease_request=LEASE)
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert end["result"] == came_to


async def test_a_childs_budget_is_given_once(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """One currency in both arguments is refused before anything is said; the amounts would add."""

    @runtime.agent("spender")
    async def spender(job: JobContext) -> Json:
        with pytest.raises(ValueError, match="USD is in the budget, and in the lease's"):
            await job.delegate("doer", [], lease={"cost.budget": ["USD:1"]}, budget={"USD": 1})
        return "refused"

    accepted = await peer.submit("spender", lease_request=LEASE)
    end, talk = await doer.whole(peer, accepted["job_id"])
    assert (end["result"], talk) == ("refused", [])


@pytest.mark.spec("9.4-3", "10-2")
async def test_two_children_get_no_more_than_there_is(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """What one was promised is not promised again, until it has ended without spending it."""

    @runtime.agent("banker")
    async def banker(job: JobContext) -> Json:
        came_to: list[Json] = []

        async def grant() -> None:
            try:
                child = await job.delegate("doer", [["sleep", 5]], budget={"USD": 3})
                came_to.append("accepted")
                await child.result()
            except ArcpError as error:
                came_to.append(error.code)

        for _ in range(2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(grant)
                nursery.start_soon(grant)
        return came_to

    accepted = await peer.submit("banker", lease_request=LEASE)
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert sorted(end["result"]) == ["LEASE_SUBSET_VIOLATION"] * 2 + ["accepted"] * 2


@pytest.mark.spec("9.4-3")
@pytest.mark.parametrize("limit", ["jobs", "jobs_per_principal", "children_per_job"])
async def test_a_child_that_is_refused_keeps_none_of_the_money(
    limit: str, autojump_clock: MockClock
) -> None:
    """A limit says so; what the refused child was to have is free for the next."""
    limits = Limits(**{limit: 1 if limit == "children_per_job" else 2})
    async with make_runtime(limits=limits) as runtime, open_peers(runtime) as peers:
        runtime.add(doer.agents)

        @runtime.agent("crowded")
        async def crowded(job: JobContext) -> Json:
            child = await job.delegate("doer", [["sleep", 1]])
            with pytest.raises(InternalError) as refusal:
                await job.delegate("doer", [], budget={"USD": 5})
            assert refusal.value.details["limit"] == limit
            await child.result()
            await trio.sleep(1)
            child = await job.delegate("doer", [["left"]], budget={"USD": 5})
            return await child.result()

        peer = await peers.connect()
        await peer.hello()
        accepted = await peer.submit("crowded", lease_request=LEASE)
        end, _ = await doer.whole(peer, accepted["job_id"])
    assert end["result"] == [{"USD": "5"}]


async def test_a_tree_has_a_bounded_depth(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """An agent that delegates to itself stops there, by name of the limit."""

    @runtime.agent("mirror")
    async def mirror(job: JobContext) -> Json:
        try:
            child = await job.delegate("mirror", lease={"agent.delegate": ["mirror"]})
        except InternalError as error:
            return [error.details]
        return [None, *await child.result()]

    accepted = await peer.submit("mirror", lease_request=LEASE)
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert end["result"] == [*[None] * 8, {"limit": "delegation_depth", "max": 8}]


@pytest.mark.parametrize("max_runtime", [0, -1, float("nan"), float("-inf")])
async def test_a_child_needs_some_time(
    peer: Peer, runtime: Runtime, max_runtime: float, autojump_clock: MockClock
) -> None:
    """A time limit that is none is refused, and hurts nobody else."""

    @runtime.agent("hasty")
    async def hasty(job: JobContext) -> Json:
        try:
            await job.delegate("sleeper", max_runtime=max_runtime)
        except ArcpError as error:
            return error.code

    accepted = await peer.submit("hasty", lease_request=LEASE)
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert end["result"] == "INVALID_REQUEST"
    assert answers(peer, accepted["job_id"]) == ["INVALID_REQUEST"]
    assert (await peer.submit("echo", "alive"))["job_id"]


@pytest.mark.parametrize("input_", [object(), {1: 2}, float("inf"), "x" * 2**20])
async def test_an_input_that_cannot_be_sent_delegates_nothing(
    peer: Peer, runtime: Runtime, input_: Json, autojump_clock: MockClock
) -> None:
    """The agent is told, and no event of it is seen."""

    @runtime.agent("clumsy")
    async def clumsy(job: JobContext) -> Json:
        with pytest.raises((InvalidEvent, ArcpError)):
            await job.delegate("doer", input_)

    accepted = await peer.submit("clumsy", lease_request=LEASE)
    end, bodies = await doer.whole(peer, accepted["job_id"])
    assert (end["final_status"], bodies) == ("success", [])


async def test_a_string_is_no_list_of_patterns(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """It is not taken for a list of its characters, of which one may be a star."""

    @runtime.agent("sloppy")
    async def sloppy(job: JobContext) -> Json:
        with pytest.raises(TypeError, match=r"tool\.call"):
            await job.delegate("doer", [], lease={"tool.call": "*"})

    accepted = await peer.submit("sloppy", lease_request={**LEASE, "tool.call": ["**"]})
    end, bodies = await doer.whole(peer, accepted["job_id"])
    assert (end["final_status"], bodies) == ("success", [])


async def test_a_client_cannot_name_a_parent(runtime: Runtime, autojump_clock: MockClock) -> None:
    """The fields are the runtime's: nobody's job becomes a child of somebody else's."""
    async with open_peers(runtime) as peers:
        alice, bob = await peers.connect(), await peers.connect()
        await alice.hello()
        await bob.hello(token=BOB)
        parent = await alice.submit("sleeper", lease_request=LEASE)
        child = await bob.submit("echo", parent_job_id=parent["job_id"], delegate_id="del_1")
        assert not {"parent_job_id", "delegate_id"} & child.keys()
        await bob.until_terminal(child["job_id"])
        with trio.move_on_after(5):
            raise AssertionError(await alice.receive())


# -- what a child is


@pytest.mark.spec("11-2", "1.0/10.3-1")
async def test_a_child_is_its_parents_in_all_that_counts(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Principal and trace are the parent's; input, lease and limits its own."""
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
    frames = await until_terminal(peer, accepted["job_id"])
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
    """By the class of its end; what the parent lets go is not taken for its own end."""

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
    """What was announced has an end, though there is no child."""

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
    """What an agent would delegate in its grace is refused, with the job's own end."""

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
    """A refusal is raised as the class of its code, and says what goes beyond."""

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
