"""What a job may do is what its lease says, and is checked before each operation (§9.1 to §9.3)."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

from arcp_trio import ArcpError, JobContext, PermissionDenied, Policy, Runtime
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json, JsonObject
from tests.jobs import doer
from tests.jobs.doer import do
from tests.stage import make_runtime

DENIED = "PERMISSION_DENIED"

OPERATIONS: list[list[Json]] = [
    ["authorize", "fs.read", "/ws/a"],
    ["authorize", "fs.write", "/ws/a"],
    ["authorize", "net.fetch", "https://example.com/a"],
    ["authorize", "tool.call", "search.web"],
    ["authorize", "agent.delegate", "doer"],
    ["authorize", "model.use", "gpt-4o"],
    ["authorize", "x-vendor.acme.print", "page"],
    ["tool", "search.web"],
    ["open", "/ws/a"],
    ["open", "/ws/a", "w"],
    ["delegate", {"agent": "doer", "input": []}],
]


# -- what is not granted


@pytest.mark.spec("9.1-1", "9.1-2", "9.3-1", "9.3-2", "1.0/9.3-1")
@pytest.mark.parametrize("step", OPERATIONS, ids=str)
async def test_no_lease_is_no_authority(
    peer: Peer, step: list[Json], autojump_clock: MockClock
) -> None:
    """Each operation of a job without a lease is refused, and the job goes on."""
    end, _ = await do(peer, step, ["log", "and on"])
    assert end["result"] == [DENIED, "done"]


@pytest.mark.spec("9.1-1", "9.3-2")
@pytest.mark.parametrize("step", OPERATIONS, ids=str)
async def test_a_capability_that_is_not_named_is_not_granted(
    peer: Peer, step: list[Json], autojump_clock: MockClock
) -> None:
    """A capability that the lease does not name is refused, whatever else is granted."""
    needed = {"tool": "tool.call", "open": "fs.*", "delegate": "agent.delegate"}.get(step[0])
    lease: JsonObject = {
        "fs.read": ["/**"],
        "fs.write": ["/**"],
        "net.fetch": ["https://**"],
        "tool.call": ["**"],
        "agent.delegate": ["**"],
        "model.use": ["**"],
        "x-vendor.acme.print": ["**"],
    }
    for capability in list(lease):
        if capability in (step[1], needed) or (needed == "fs.*" and capability.startswith("fs.")):
            del lease[capability]
    end, _ = await do(peer, step, lease_request=lease)
    assert end["result"] == [DENIED]


@pytest.mark.spec("9.3-2", "9.3-3", "1.0/9.3-1")
async def test_a_refused_tool_is_not_called(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A refused tool call raises before its block is entered, and its result is the refusal."""
    called: list[str] = []

    @runtime.agent("caller")
    async def caller(job: JobContext) -> Json:
        try:
            async with job.tool_call("shell.run", {"command": "ls"}):
                called.append("shell.run")
        except PermissionDenied as error:
            await job.log(error.message)
        async with job.tool_call("search.web", {"q": "trio"}) as call:
            called.append("search.web")
            call.result = {"hits": 3}
        return "went on"

    accepted = await peer.submit("caller", lease_request={"tool.call": ["search.*"]})
    end, bodies = await doer.whole(peer, accepted["job_id"])
    assert end["result"] == "went on"
    assert called == ["search.web"]
    refused, error, log, call, result = bodies
    assert refused == {
        "tool": "shell.run",
        "call_id": error["call_id"],
        "args": {"command": "ls"},
    }
    assert error["error"]["code"] == DENIED
    assert error["error"]["retryable"] is False
    assert error["error"]["message"] == log["message"]
    assert result == {"call_id": call["call_id"], "result": {"hits": 3}}
    assert call["call_id"] != refused["call_id"]


@pytest.mark.spec("9.3-2", "9.6-8")
async def test_a_refusal_that_the_agent_lets_go_ends_the_job_with_its_code(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """An uncaught refusal ends the job with its code and message."""

    @runtime.agent("careless")
    async def careless(job: JobContext) -> Json:
        job.authorize("fs.read", "/etc/passwd")
        return "not reached"

    accepted = await peer.submit("careless")
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert (end["final_status"], end["code"]) == ("error", DENIED)
    assert "/etc/passwd" in end["message"]


# -- what is granted


@pytest.mark.spec("9.2-1", "1.0/9.2-1", "1.0/9.2-2", "1.0/14-2")
@pytest.mark.parametrize(
    ("capability", "pattern", "allowed", "denied"),
    [
        ("fs.read", "/ws/**", ["/ws/a", "/ws/a/b", "/ws"], ["/ws2/a", "/wsx", "/w", "ws/a"]),
        ("fs.read", "/ws/*", ["/ws/a"], ["/ws/a/b", "/ws", "/ws/a/../../etc/passwd"]),
        ("net.fetch", "https://h/*", ["https://h/a"], ["https://h/a/b", "http://h/a"]),
        (
            "fs.write",
            "/ws/**",
            ["/ws/./a", "/ws/a/../b"],
            ["/ws/../etc/passwd", "/ws/%2e%2e/etc", "/ws\\..\\etc", "/ws/a\0", "/ws/../ws2/a"],
        ),
        ("tool.call", "a.b", ["a.b"], ["aXb", "a.bc", "xa.b"]),
        ("tool.call", "a+b", ["a+b"], ["aab", "ab"]),
        ("tool.call", "[x]", ["[x]"], ["x"]),
        ("tool.call", "(a|b)", ["(a|b)"], ["a", "b"]),
        ("model.use", "anthropic/*", ["anthropic/claude"], ["openai/gpt-4o", "anthropic/a/b"]),
        ("model.use", "gpt-*o", ["gpt-4o"], ["gpt-5", "gpt-4o-mini"]),
    ],
)
async def test_patterns_at_work(
    peer: Peer,
    capability: str,
    pattern: str,
    allowed: list[str],
    denied: list[str],
    autojump_clock: MockClock,
) -> None:
    """An operation is allowed if a pattern matches the whole of its target."""
    steps = [["authorize", capability, target] for target in [*allowed, *denied]]
    end, _ = await do(peer, *steps, lease_request={capability: [pattern]})
    assert end["result"] == ["done"] * len(allowed) + [DENIED] * len(denied)


# -- how a lease is asked for


@pytest.mark.spec("9.2-1", "12-1")
@pytest.mark.parametrize(
    "lease",
    [
        {"tool.call": [""]},
        {"tool.call": [1]},
        {"tool.call": "search.*"},
        {"tool.call": {"search": True}},
        {"tool.call": None},
        {"": ["a"]},
        {"nonsense": ["a"]},
        {"TOOL.CALL": ["a"]},
        {"fs.read": ["./relative/path"]},
        {"fs.read": ["/ws/../etc"]},
        {"cost.budget": ["USD"]},
    ],
    ids=str,
)
async def test_a_malformed_lease_is_refused(
    peer: Peer, lease: Json, autojump_clock: MockClock
) -> None:
    """A malformed lease is INVALID_REQUEST and makes no job; the session goes on."""
    with pytest.raises(ArcpError) as refusal:
        await peer.submit("doer", [], lease_request=lease)
    assert refusal.value.code == "INVALID_REQUEST"
    end, _ = await do(peer, ["log", "alive"])
    assert end["result"] == ["done"]
    assert {frame["type"] for frame in peer.seen} <= {"job.event"}


async def test_a_lease_is_shown_as_it_was_accepted(
    peer: Peer, runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Acceptance and agent have the same lease, without capabilities that grant nothing."""
    lease: JsonObject = {"tool.call": ["search.*"], "fs.read": []}
    seen: list[JsonObject] = []

    @runtime.agent("looker")
    async def looker(job: JobContext) -> Json:
        held: Any = job.lease
        held["tool.call"].append("**")  # a copy, which does not change the lease
        seen.append(dict(job.lease))
        job.authorize("tool.call", "shell.run")

    accepted = await peer.submit("looker", lease_request=lease)
    assert accepted["lease"] == {"tool.call": ["search.*"]}
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert end["code"] == DENIED
    assert seen == [{"tool.call": ["search.*"]}]


# -- models


@pytest.mark.spec("9.7-4")
async def test_models_need_no_provisioner(peer: Peer, runtime: Runtime) -> None:
    """A runtime without a provisioner offers `model.use`."""
    async with open_peer(runtime) as other:
        welcome = await other.hello()
    assert "model.use" in welcome["payload"]["capabilities"]["features"]


@pytest.mark.spec("9.7-1", "9.7-2", "9.7-4")
@pytest.mark.parametrize(
    ("any_model", "lease", "outcome"),
    [
        (False, {}, DENIED),
        (True, {}, "done"),
        (True, {"model.use": []}, DENIED),
        (True, {"model.use": ["anthropic/*"]}, DENIED),
        (False, {"model.use": ["openai/*"]}, "done"),
    ],
    ids=str,
)
async def test_who_may_use_a_model(
    *, any_model: bool, lease: JsonObject, outcome: str, autojump_clock: MockClock
) -> None:
    """`model.use` decides about models, or else the policy, which forbids them by default."""
    async with make_runtime(policy=Policy(any_model=any_model)) as runtime:
        runtime.add(doer.agents)
        async with open_peer(runtime) as peer:
            await peer.hello()
            step = ["authorize", "model.use", "openai/gpt-4o"]
            end, _ = await do(peer, step, lease_request=lease)
    assert end["result"] == [outcome]


# -- features
