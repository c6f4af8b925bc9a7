"""What an agent can say: the events of §8.2, in order, and the refusals of those that are none."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping
from decimal import Decimal

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import ArcpError, InternalError, InvalidEvent, JobContext, Limits, Runtime
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json
from tests.stage import make_runtime

Act = Callable[[JobContext], Awaitable[Json]]


async def play(runtime: Runtime, peer: Peer, act: Act) -> Json:
    """Run a function as an agent; its result."""

    async def actor(job: JobContext) -> Json:
        return await act(job)

    runtime.agent("actor")(actor)
    job = await peer.submit("actor")
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["final_status"] == "success", end
    return end["payload"]["result"]


def said(peer: Peer) -> list[tuple[str, Json]]:
    """Kind and body of the events that the peer has seen, in order."""
    events = [frame["payload"] for frame in peer.seen if frame["type"] == "job.event"]
    return [(event["kind"], event["body"]) for event in events]


async def test_a_context_tells_about_its_job(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """Id, agent, version, input, principal, trace and deadline are those of the submit."""

    @runtime.agent("looking", version="7")
    async def looking(job: JobContext) -> Json:
        return [job.id, job.agent, job.version, job.input, job.principal, job.trace_id]

    job = await peer.submit("looking@7", {"x": 1})
    end = await peer.until_terminal(job["job_id"])
    result = [job["job_id"], "looking", "7", {"x": 1}, "alice", job["trace_id"]]
    assert end["payload"]["result"] == result


@pytest.mark.spec("8.1-1", "8.2-1", "8.2.1-1")
async def test_each_method_says_its_event(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """The bodies have the fields of §8.2, and none that was left out."""

    async def act(job: JobContext) -> Json:
        await job.log("hello")
        await job.log("careful", level="warn")
        await job.thought("hm")
        await job.status("working")
        await job.status("working", "hard")
        await job.progress(1)
        await job.progress(0.5, total=2, units="files", message="half")
        await job.progress(3, total=2)
        await job.metric("lines", 5)
        await job.metric("cost.usd", Decimal("0.10"), unit="USD", dimensions={"model": "m"})
        await job.metric("delta", -1.5)
        await job.artifact("file:///a", "text/plain")
        await job.artifact("file:///b", "text/plain", byte_size=0, sha256="ab" * 32)
        return None

    await play(runtime, peer, act)
    assert said(peer) == [
        ("log", {"level": "info", "message": "hello"}),
        ("log", {"level": "warn", "message": "careful"}),
        ("thought", {"text": "hm"}),
        ("status", {"phase": "working"}),
        ("status", {"phase": "working", "message": "hard"}),
        ("progress", {"current": 1}),
        ("progress", {"current": 0.5, "total": 2, "units": "files", "message": "half"}),
        ("progress", {"current": 3, "total": 2}),
        ("metric", {"name": "lines", "value": 5}),
        (
            "metric",
            {"name": "cost.usd", "value": 0.1, "unit": "USD", "dimensions": {"model": "m"}},
        ),
        ("metric", {"name": "delta", "value": -1.5}),
        ("artifact_ref", {"uri": "file:///a", "content_type": "text/plain"}),
        (
            "artifact_ref",
            {
                "uri": "file:///b",
                "content_type": "text/plain",
                "byte_size": 0,
                "sha256": "ab" * 32,
            },
        ),
    ]


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
    """`emit` takes every kind of §8.2 and vendors' own; the body arrives as it is."""
    call = {"tool": "t", "call_id": body.get("call_id")}
    before = [("tool_call", call)] if kind == "tool_result" else []

    async def act(job: JobContext) -> Json:
        for each in (*before, (kind, body)):
            await job.emit(*each)
        return None

    await play(runtime, peer, act)
    assert said(peer) == [*before, (kind, body)]


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
    """That call raises; nothing of it is on the wire, and the stream goes on without a gap."""

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
    """Past `frame_bytes_out` the call raises and names the limit; just below it arrives."""

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
    """Every frame stays within the depth that peers must take."""

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
    """What was emitted before stays; the job ends with INTERNAL_ERROR."""

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
    """An agent that goes on using its dictionary changes nothing that it has said."""

    async def act(job: JobContext) -> Json:
        body: dict[str, Json] = {"count": 0}
        for count in range(3):
            body["count"] = count
            await job.emit("x-vendor.a.b", body)
        return None

    await play(runtime, peer, act)
    assert [body["count"] for _, body in said(peer)] == [0, 1, 2]


@pytest.mark.spec("6.2-4")
async def test_progress_is_sent_to_those_who_negotiated_it(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Without the feature the event takes no number; the others follow without a gap."""

    @runtime.agent("busy")
    async def busy(job: JobContext) -> Json:
        for step in range(5):
            await job.progress(step)
            await job.log(f"step {step}")

    for features, count in (((), 5), (("progress",), 10)):
        async with open_peer(runtime) as peer:
            await peer.hello(features=features)
            job = await peer.submit("busy")
            end = await peer.until_terminal(job["job_id"])
            assert end["event_seq"] == count + 1
            assert len(said(peer)) == count


@pytest.mark.spec("8.3-1", "1.0/8.3-3")
async def test_tasks_of_an_agent_emit_in_the_order_of_their_calls(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """Whichever task says something: the wire has the order in which it was said."""
    order: list[str] = []

    async def act(job: JobContext) -> Json:
        async def worker(name: str) -> None:
            chance = random.Random(name)
            for number in range(200):
                order.append(f"{name}{number}")
                await job.log(order[-1])
                if chance.random() < 0.2:
                    await trio.sleep(chance.random())

        async with trio.open_nursery() as nursery:
            for name in "abcde":
                nursery.start_soon(worker, name)
        return None

    await play(runtime, peer, act)
    assert len(order) == 1000
    assert [body["message"] for _, body in said(peer)] == order


@pytest.mark.spec("1.0/8.3-3")
async def test_what_was_said_before_the_result_comes_before_it(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A thousand events without a pause, then a result: all of them, then the terminal."""

    async def act(job: JobContext) -> Json:
        for number in range(1000):
            await job.metric("n", number)
        return "done"

    assert await play(runtime, peer, act) == "done"
    assert [body["value"] for _, body in said(peer)] == list(range(1000))


async def test_a_task_that_outlives_the_agent_says_nothing_more(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """The job's end is the end also for tasks that the agent has started elsewhere."""
    refusals: list[ArcpError] = []

    async with trio.open_nursery() as elsewhere:

        async def chatter(job: JobContext) -> None:
            for number in range(10):
                await trio.sleep(1)
                try:
                    await job.log(f"{number}")
                except ArcpError as error:
                    refusals.append(error)

        async def act(job: JobContext) -> Json:
            elsewhere.start_soon(chatter, job)
            await trio.sleep(3.5)
            return None

        await play(runtime, peer, act)
    assert [body["message"] for _, body in said(peer)] == ["0", "1", "2"]
    assert len(refusals) == 7
    await peer.submit("echo")


@pytest.mark.spec("1.0/7.4-1")
async def test_an_agent_in_a_tight_loop_can_be_cancelled(autojump_clock: MockClock) -> None:
    """Every call is a place where the job can be cancelled, and the loop lets others work."""
    limits = Limits(journal_bytes=100_000)  # past it the agent waits for its slow client
    async with make_runtime(limits=limits) as runtime, open_peer(runtime) as peer:

        @runtime.agent("talkative")
        async def talkative(job: JobContext) -> Json:
            while True:
                await job.log("and another thing")

        await peer.hello()
        job = await peer.submit("talkative")
        other = await peer.submit("echo", "meanwhile")
        assert (await peer.until_terminal(other["job_id"]))["payload"]["result"] == "meanwhile"
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["code"] == "CANCELLED"


async def test_timestamps_are_of_the_runtimes_clock(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """`ts` does not go back, and ten virtual minutes are ten minutes."""

    async def act(job: JobContext) -> Json:
        for _ in range(11):
            await job.log("tick")
            await trio.sleep(60)
        return None

    peer.patience = 10_000
    await play(runtime, peer, act)
    times = [frame["payload"]["ts"] for frame in peer.seen if frame["type"] == "job.event"]
    assert times == sorted(times)
    minutes = [int(time[14:16]) for time in times]
    assert (minutes[10] - minutes[0]) % 60 == 10


async def test_limits_of_a_frame_are_configurable(autojump_clock: MockClock) -> None:
    """A runtime with small frames refuses what another would send, for events and results alike."""
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
