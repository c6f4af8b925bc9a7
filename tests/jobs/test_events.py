"""What an agent may emit, and how a bad event is refused to it (§8.2)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pytest
from trio.testing import MockClock

from arcp_trio import InternalError, InvalidEvent, JobContext, Limits, Runtime
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json
from tests.jobs.acting import play, said
from tests.stage import make_runtime

BODIES: list[tuple[str, dict[str, Json]]] = [
    ("log", {"level": "debug", "message": "m", "logger": "extra fields stay"}),
    ("thought", {"text": ""}),
    ("tool_call", {"tool": "search.web", "call_id": "c1", "args": {"q": [1, None]}}),
    ("tool_call", {"tool": "search.web", "call_id": "c2"}),
    ("tool_result", {"call_id": "c1", "result": {"hits": 3}}),
    ("tool_result", {"call_id": "c2", "result": None}),
    (
        "tool_result",
        {
            "call_id": "c3",
            "error": {"code": "PERMISSION_DENIED", "message": "no", "retryable": False},
        },
    ),
    ("status", {"phase": "p"}),
    ("metric", {"name": "n", "value": 0}),
    ("artifact_ref", {"uri": "u", "content_type": "c"}),
    ("progress", {"current": 0, "total": 0}),
    ("x-vendor.acme.thing", {"anything": ["goes", {"here": None}]}),
    ("x-vendor.acme.sub.thing", {}),
]


@pytest.mark.parametrize(("kind", "body"), BODIES)
@pytest.mark.spec("8.2-1", "1.0/8.2-1")
async def test_any_kind_can_be_emitted(
    runtime: Runtime, peer: Peer, kind: str, body: dict[str, Json], autojump_clock: MockClock
) -> None:
    """`emit` takes every kind of §8.2 and vendors' kinds, and the body arrives unchanged."""
    call = {"tool": "t", "call_id": body.get("call_id")}
    before = [("tool_call", call)] if kind == "tool_result" else []

    async def act(job: JobContext) -> Json:
        for each in (*before, (kind, body)):
            await job.emit(*each)
        return None

    await play(runtime, peer, act)
    # A call that is left open is ended with the job.
    assert said(peer)[: len(before) + 1] == [*before, (kind, body)]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("log", {"level": "loud", "message": "m"}),
        ("log", {"level": "info"}),
        ("log", {"level": "info", "message": 5}),
        ("log", {"level": "info", "message": "\ud800"}),
        ("log", {"level": "info", "message": "m", "extra": object()}),
        ("log", {"level": "info", "message": "m", "extra": b"bytes"}),
        ("log", {"level": "info", "message": "m", 5: "a key"}),
        ("log", "no object"),
        ("log", None),
        ("thought", {}),
        ("tool_call", {"tool": "", "call_id": "c"}),
        ("tool_call", {"tool": "t"}),
        ("tool_result", {"call_id": "c"}),
        ("tool_result", {"call_id": "c", "result": 1, "error": {"code": "CANCELLED"}}),
        ("tool_result", {"call_id": "c", "error": {"code": "NO_CODE"}}),
        ("status", {"phase": ""}),
        ("metric", {"name": "n", "value": float("nan")}),
        ("metric", {"name": "n", "value": float("inf")}),
        ("metric", {"name": "n", "value": Decimal("NaN")}),
        ("metric", {"name": "n", "value": "5"}),
        ("metric", {"name": "n", "value": True}),
        ("metric", {"name": "cost.usd", "value": -0.01}),
        ("metric", {"name": "cost.usd", "value": Decimal("-0.01")}),
        ("metric", {"name": "n", "value": 2**63}),
        ("progress", {"current": -1}),
        ("progress", {"current": float("nan")}),
        ("progress", {"current": None}),
        ("progress", {"current": 1, "total": -1}),
        ("artifact_ref", {"uri": "", "content_type": "c"}),
        ("artifact_ref", {"uri": "u", "content_type": "c", "byte_size": -1}),
        ("no_such_kind", {}),
        ("", {}),
        ("x-vendor.acme", {}),
        ("X-Vendor.acme.thing", {}),
        ("x-vendor.acme.thing", {"it": float("nan")}),
        ('x-vendor.acme.quote"', {}),
    ],
    ids=range(36),
)
@pytest.mark.spec("8.2.1-2")
async def test_a_bad_event_is_refused_to_its_agent(
    runtime: Runtime, peer: Peer, kind: str, body: Mapping[str, Json], autojump_clock: MockClock
) -> None:
    """A bad event raises in the agent, is not sent, and leaves no gap in the numbers."""

    async def act(job: JobContext) -> Json:
        await job.log("before")
        with pytest.raises(InvalidEvent):
            await job.emit(kind, body)
        await job.log("behind")
        return None

    await play(runtime, peer, act)
    assert [body["message"] for _, body in said(peer)] == ["before", "behind"]


async def test_an_event_larger_than_a_frame_is_refused_to_its_agent(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """An event past `frame_bytes_out` raises with the limit's name; one just below is sent."""

    async def act(job: JobContext) -> Json:
        await job.log("x" * (2**20 - 1000))
        with pytest.raises(InternalError) as refused:
            await job.log("x" * 2**20)
        return refused.value.details

    result = await play(runtime, peer, act)
    assert result == {"limit": "frame_bytes_out", "max": 2**20}
    assert len(said(peer)) == 1


async def test_an_event_deeper_than_a_frame_is_refused_to_its_agent(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """An event nested deeper than peers must accept raises in the agent."""

    async def act(job: JobContext) -> Json:
        deep: Json = []
        for _ in range(70):
            deep = [deep]
        with pytest.raises(InvalidEvent):
            await job.emit("x-vendor.a.b", {"deep": deep})
        return None

    await play(runtime, peer, act)


@pytest.mark.logs_error("agent=careless")
async def test_a_bad_event_that_nobody_catches_fails_the_job(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """An uncaught refusal of an event ends the job with INTERNAL_ERROR."""

    @runtime.agent("careless")
    async def careless(job: JobContext) -> Json:
        await job.progress(1)
        await job.progress(-1)

    job = await peer.submit("careless")
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["code"] == "INTERNAL_ERROR"
    assert said(peer) == [("progress", {"current": 1})]


async def test_a_body_is_taken_as_it_is_at_the_call(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """An agent that changes its dictionary after `emit` does not change the event."""

    async def act(job: JobContext) -> Json:
        body: dict[str, Json] = {"count": 0}
        for count in range(3):
            body["count"] = count
            await job.emit("x-vendor.a.b", body)
        return None

    await play(runtime, peer, act)
    assert [body["count"] for _, body in said(peer)] == [0, 1, 2]


async def test_limits_of_a_frame_are_configurable(autojump_clock: MockClock) -> None:
    """A runtime with a small `frame_bytes_out` refuses an event that another would send."""
    async with (
        make_runtime(limits=Limits(frame_bytes_out=2000)) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()

        async def act(job: JobContext) -> Json:
            with pytest.raises(InternalError):
                await job.log("x" * 2000)
            return "small"

        assert await play(runtime, peer, act) == "small"
