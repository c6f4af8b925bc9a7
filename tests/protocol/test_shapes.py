"""The exact shape of a runtime's frames: which fields each has, and how they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, JobError
from arcp_trio.testing import Peer, PeerFactory, open_peer, open_peers
from arcp_trio.testing.frames import NUMBERED, Frame
from arcp_trio.wire.json import Json, JsonObject
from tests.protocol.support import answers
from tests.stage import make_runtime

ULID = r"[0-9A-HJKMNP-TV-Z]{26}"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
WRITTEN = {
    "id": ULID,
    "session_id": f"sess_{ULID}",
    "job_id": f"job_{ULID}",
    "trace_id": r"[0-9a-f]{32}",
    "resume_token": r"rt_[0-9a-f]{32,}",
    "nonce": rf"p_{ULID}",
    "agent": r"[a-z0-9._-]+@[A-Za-z0-9.+_-]+",
    "arcp": r"1\.1",
    **dict.fromkeys(("accepted_at", "completed_at", "sent_at", "received_at", "ts"), TIME),
}
"""How a field of this name is written, in any frame."""

BASE = {"arcp", "id", "type", "session_id", "payload"}
OF_JOB = BASE | {"job_id", "trace_id"}
ENDED = {"final_status", "code", "message", "retryable", "completed_at"}

SHAPES: dict[str, tuple[set[str], set[str], set[str]]] = {
    "session.welcome": (
        BASE,
        {
            "runtime",
            "session_id",
            "resume_token",
            "resume_window_sec",
            "heartbeat_interval_sec",
            "accepted_at",
            "capabilities",
        },
        set(),
    ),
    "session.ping": (BASE, {"nonce", "sent_at"}, set()),
    "session.pong": (BASE, {"ping_nonce", "received_at"}, set()),
    "session.closed": (BASE, set(), {"reason"}),
    "session.error": (
        BASE,
        {"code", "message", "retryable", "request_id"},
        {"job_id", "details"},
    ),
    "job.accepted": (
        OF_JOB,
        {"job_id", "agent", "lease", "accepted_at", "trace_id", "request_id"},
        set(),
    ),
    "job.cancelled": (BASE | {"job_id"}, {"job_id"}, {"reason"}),
    "job.event": (OF_JOB | {"event_seq"}, {"kind", "ts", "body"}, set()),
    "job.result": (OF_JOB | {"event_seq"}, {"final_status", "result", "completed_at"}, set()),
    "job.error": (OF_JOB | {"event_seq"}, ENDED, {"details"}),
}
"""By type: the fields of the envelope, of the payload, and optional ones."""


def check_shape(frame: Frame) -> None:
    """Check the fields of a frame, and how they are written."""
    envelope, always, sometimes = SHAPES[frame["type"]]
    assert set(frame) == envelope, frame
    assert always <= set(frame["payload"]) <= always | sometimes, frame
    for name, value in fields(frame):
        if name in WRITTEN:
            assert re.fullmatch(WRITTEN[name], value), (name, value)


def fields(value: JsonObject) -> Iterator[tuple[str, Json]]:
    """Yield the fields of an object and of those in it, without an agent's own."""
    for name, inner in value.items():
        if name in {"body", "result", "details", "capabilities"}:
            continue
        yield name, inner
        if isinstance(inner, dict):
            yield from fields(inner)


async def say_everything(peer: Peer) -> None:
    """Make the runtime send all it can, with and without optional fields."""
    peer.answer_pings = False
    accepted = await peer.send("job.submit", {"agent": "echo", "input": {"null": None}})
    await peer.expect("job.accepted", request_id=accepted)
    await peer.send("job.submit", {"agent": "echo"})
    await peer.send("job.submit", {"agent": "nobody"})
    await peer.send("job.submit", {"agent": "talker"})
    await peer.expect("job.error")
    for payload in ({}, {"reason": "enough"}):
        job = (await peer.submit("sleeper"))["job_id"]
        await peer.send("job.cancel", {"job_id": job, **payload})
        await peer.expect("job.cancelled")
        await peer.until_terminal(job)
    slow = (await peer.submit("sleeper", max_runtime_sec=40))["job_id"]
    await peer.send("job.cancel", {"job_id": "job_01ARZ3NDEKTSV4RRFFQ69G5FAV"})
    await peer.expect("session.ping")
    await peer.send("session.ping", {"nonce": "n"})
    await peer.expect("session.pong")
    await peer.until_terminal(slow)
    await peer.send("session.close")
    await peer.expect("session.closed")


@pytest.mark.spec(
    "5-1",
    "6.2-2",
    "6.4-2",
    "7.1-1",
    "7.3-1",
    "7.4-2",
    "8.1-1",
    "8.2.1-1",
    "8.4-9",
    "1.0/5.1-1",
    "1.0/5.1-2",
    "1.0/5.1-3",
    "1.0/5.1-4",
    "1.0/5.1-5",
    "1.0/5.1-6",
    "1.0/5.1-7",
    "1.0/5.1-8",
    "1.0/7.3-1",
    "1.0/12-1",
)
async def test_each_frame_has_its_fields_and_no_others(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Every frame has exactly its fields, written as promised, and no nulls."""
    frames: list[Frame] = []
    async with make_runtime() as runtime, open_peer(runtime) as peer:

        @runtime.agent("talker")
        async def talker(job: JobContext) -> Json:
            await job.log("a line")
            await job.progress(1)
            await job.status("thinking")
            raise JobError("no", {"why": None})

        receive = peer.receive

        async def note() -> Frame:
            frames.append(await receive())
            return frames[-1]

        monkeypatch.setattr(peer, "receive", note)
        await peer.hello()
        await say_everything(peer)
    for frame in frames:
        check_shape(frame)
    assert {frame["type"] for frame in frames} == set(SHAPES)
    # Only events and terminals have a number, in one sequence for all jobs.
    numbers = [frame["event_seq"] for frame in frames if frame["type"] in NUMBERED]
    assert numbers == list(range(1, len(numbers) + 1))
    results = [frame["payload"]["result"] for frame in frames if frame["type"] == "job.result"]
    assert results == [{"null": None}, None]
    bodies = [frame["payload"]["body"] for frame in frames if frame["type"] == "job.event"]
    assert bodies == [
        {"level": "info", "message": "a line"},
        {"current": 1},
        {"phase": "thinking"},
    ]


@pytest.mark.spec("6.2-2")
async def test_a_welcome_to_the_letter(autojump_clock: MockClock) -> None:
    """The parts of a welcome that are the same for every session are exactly these."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        welcome = await peer.hello()
        payload = welcome["payload"]
        assert payload["session_id"] == welcome["session_id"]
        assert set(payload["runtime"]) == {"name", "version"}
        assert payload["resume_window_sec"] == 600
        assert payload["heartbeat_interval_sec"] == 30
        capabilities = payload["capabilities"]
        assert set(capabilities) == {"encodings", "features", "agents"}
        assert capabilities["agents"] == [
            {"name": name, "versions": ["1.0.0"], "default": "1.0.0"}
            for name in ("echo", "sleeper")
        ]


@pytest.mark.parametrize("reason", [None, "", "done for today"])
@pytest.mark.spec("6.7-1", "7.4-2")
async def test_a_reason_comes_back_as_it_was_given(
    reason: str | None, autojump_clock: MockClock
) -> None:
    """`job.cancelled` and `session.closed` repeat the reason, if there was one."""
    given: JsonObject = {} if reason is None else {"reason": reason}
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        job = (await peer.submit("sleeper"))["job_id"]
        await peer.send("job.cancel", {"job_id": job, **given})
        cancelled = await peer.expect("job.cancelled")
        assert cancelled["payload"] == {"job_id": job, **given}
        await peer.until_terminal(job)
        await peer.send("session.close", {"reason": reason})  # null is as good as absent
        assert (await peer.expect("session.closed"))["payload"] == given


@pytest.mark.parametrize("where", ["payload", "envelope", "both"])
@pytest.mark.spec("7.4-1")
async def test_a_cancel_may_name_its_job_in_either_place(
    where: str, autojump_clock: MockClock
) -> None:
    """A cancel may name its job in the payload, on the envelope, or in both."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        job: JsonObject = {"job_id": (await peer.submit("sleeper"))["job_id"]}
        on_envelope = {} if where == "payload" else job
        await peer.send("job.cancel", {} if where == "envelope" else job, **on_envelope)
        await peer.expect("job.cancelled", **job)


# -- clients that need another shape


def hello_of(family: str) -> tuple[str, JsonObject]:
    """Return the id and the payload of a hello of this family of clients."""
    capabilities: JsonObject = {"encodings": ["json"], "features": ["ack", "agent_versions"]}
    if family == "python":
        capabilities["agents"] = []
    ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    return (
        ulid if family in {"python", "standard"} else f"msg_{ulid}",
        {
            "client": {"name": "c", "version": "1"},
            "auth": {"scheme": "bearer", "token": "test-token"},
            "capabilities": capabilities,
        },
    )


async def greet(peers: PeerFactory, family: str, resume: JsonObject | None = None) -> Peer:
    """Return a connected client of this family."""
    peer = await peers.connect()
    hello_id, payload = hello_of(family)
    if resume is not None:
        payload["resume"] = resume
    await peer.send("session.hello", payload, id=hello_id)
    await peer.expect("session.welcome")
    return peer


async def end_three_ways(peer: Peer) -> list[Frame]:
    """Return the terminals of a cancelled, a timed-out and a failed job."""
    jobs = [
        (await peer.submit("sleeper"))["job_id"],
        (await peer.submit("sleeper", max_runtime_sec=5))["job_id"],
        (await peer.submit("failing"))["job_id"],
    ]
    await peer.send("job.cancel", {"job_id": jobs[0]})
    return [await peer.until_terminal(job) for job in jobs]


IN_THE_TEXTS_SHAPE = [
    ("job.error", "cancelled", ENDED),
    ("job.error", "timed_out", ENDED),
    ("job.error", "error", ENDED),
]
IN_PYTHONS_SHAPE = [
    ("job.result", "cancelled", {"final_status", "completed_at"}),
    ("job.result", "timed_out", {"final_status", "completed_at"}),
    ("job.error", "error", ENDED),
]


def outline(frame: Frame) -> tuple[str, str, set[str]]:
    """Return type, status and fields of a terminal."""
    return frame["type"], frame["payload"]["final_status"], set(frame["payload"])


@pytest.mark.parametrize("family", ["standard", "python", "typescript"])
@pytest.mark.parametrize("form", ["hello", "session.resume"])
async def test_an_end_has_the_shape_its_client_can_read(
    family: str, form: str, autojump_clock: MockClock
) -> None:
    """A terminal has the shape for its client, live and in a replay."""
    expected = IN_PYTHONS_SHAPE if family == "python" else IN_THE_TEXTS_SHAPE
    async with make_runtime() as runtime, open_peers(runtime) as peers:

        @runtime.agent("failing")
        async def failing(_job: JobContext) -> Json:
            raise JobError("no")

        peer = await greet(peers, family)
        live = await end_three_ways(peer)
        assert [outline(frame) for frame in live] == expected
        await peer.drop()

        resume = peer.resume_from() | {"last_event_seq": 0}
        if form == "hello":
            again = await greet(peers, family, resume)
        else:
            again = await peers.connect()
            await again.send("session.resume", resume)
            await again.expect("session.welcome")
        assert [await again.until_terminal(frame["job_id"]) for frame in live] == live
        await again.drop()

        async with open_peers(runtime) as others:  # they share no record with those before
            other = await greet(others, "standard", again.resume_from() | {"last_event_seq": 0})
            frames = [await other.until_terminal(frame["job_id"]) for frame in live]
            assert [outline(frame) for frame in frames] == IN_THE_TEXTS_SHAPE
            same = ("id", "event_seq", "job_id", "trace_id")
            assert [[f[name] for name in same] for f in frames] == [
                [f[name] for name in same] for f in live
            ]


@pytest.mark.parametrize("family", ["standard", "python", "typescript"])
async def test_a_cancel_that_came_too_late(family: str, autojump_clock: MockClock) -> None:
    """A late cancel is INVALID_REQUEST; clients that would drop all jobs get no answer."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:

        @runtime.agent("failing")
        async def failing(_job: JobContext) -> Json:
            raise JobError("no")

        peer = await greet(peers, family)
        ends = [await peer.until_terminal((await peer.submit("echo"))["job_id"])]
        ends += await end_three_ways(peer)
        for end in ends:
            late = await peer.send("job.cancel", {"job_id": end["job_id"]})
            unknown = await peer.send("job.cancel", {"job_id": "job_nobodys"})
            answered = await answers(peer, 2 if family == "standard" else 1)
            if family == "standard":
                error = answered[0]["payload"]
                assert (error["code"], error["request_id"]) == ("INVALID_REQUEST", late)
                assert end["payload"]["final_status"] in error["message"]
                assert error["job_id"] == end["job_id"]
            assert answered[-1]["payload"]["request_id"] == unknown
        await trio.sleep(1)
        await peer.submit("echo")
        assert not [f for f in peer.seen if f["type"] == "session.error"]
