"""Delegations that are refused: beyond the parent's lease, or without a grant (§9.4, §10)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    ArcpError,
    InternalError,
    InvalidEvent,
    JobContext,
    Limits,
    Runtime,
)
from arcp_trio.testing import Peer, open_peers
from arcp_trio.wire.json import Json, JsonObject
from tests.jobs import doer
from tests.jobs.delegating import LEASE, agents, answers
from tests.reading import until_end
from tests.stage import BOB, make_runtime


@pytest.fixture
def runtime(runtime: Runtime) -> Runtime:
    """A runtime that also has the agents that delegate."""
    runtime.add(agents)
    return runtime


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
    """A refusal is a tool result under the delegation's id, and raises in the parent."""
    accepted = await peer.submit("boss", {"agent": "worker"} | asked, lease_request=LEASE)
    seen = await until_end(peer, accepted["job_id"])
    bodies = [frame["payload"].get("body", {}) for frame in seen]
    (delegate_id,) = [body["delegate_id"] for body in bodies if "delegate_id" in body]
    (error,) = [body["error"] for body in bodies if body.get("call_id") == delegate_id]
    assert error["code"] == code
    assert seen[-1]["payload"]["result"] == {"refused": code}


async def ask(peer: Peer, *asked: JsonObject, **fields: Json) -> list[str]:
    """Have a job delegate these in turn, and return the outcome of each."""
    steps: list[Json] = [["delegate", one] for one in asked]
    accepted = await peer.submit("doer", steps, **fields)
    await peer.until_terminal(accepted["job_id"])
    return answers(peer, accepted["job_id"])


@pytest.mark.spec("9.3-2", "10-1")
@pytest.mark.parametrize("lease", [{}, {"agent.delegate": ["other"]}, {"tool.call": ["**"]}])
async def test_to_delegate_needs_a_grant(
    peer: Peer, lease: JsonObject, autojump_clock: MockClock
) -> None:
    """A delegation needs `agent.delegate` for the agent's name, whichever version."""
    for agent in ("doer", "doer@1.0.0"):
        asked: JsonObject = {"agent": agent, "input": []}
        assert await ask(peer, asked, lease_request=lease) == ["PERMISSION_DENIED"]


async def test_a_version_needs_no_grant_of_its_own(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """The grant is for the name of the agent; the version is resolved as for a submit."""
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
    """A lease that is provably a part of the parent's is accepted, and any other refused."""
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
    """Of 5.00 with 3.00 spent a child gets up to 2.00."""

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
    """One currency in both `lease` and `budget` is refused before anything is emitted."""

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
    """What was promised to one child is free again once it has ended without spending it."""

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
    """A child refused at a limit leaves its budget to the next child."""
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
    """An agent that delegates to itself is refused at `delegation_depth`."""

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
    """An invalid time limit is refused, and no other job is affected."""

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
    """An input that is not JSON raises in the agent, and no event is sent."""

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
    """A string in the place of a list of patterns is refused."""

    @runtime.agent("sloppy")
    async def sloppy(job: JobContext) -> Json:
        with pytest.raises(TypeError, match=r"tool\.call"):
            await job.delegate("doer", [], lease={"tool.call": "*"})

    accepted = await peer.submit("sloppy", lease_request={**LEASE, "tool.call": ["**"]})
    end, bodies = await doer.whole(peer, accepted["job_id"])
    assert (end["final_status"], bodies) == ("success", [])


async def test_a_client_cannot_name_a_parent(runtime: Runtime, autojump_clock: MockClock) -> None:
    """A client's claim to be a child's parent is ignored."""
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
