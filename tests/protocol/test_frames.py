"""What a client may put into a frame, and what each wrong one comes to (§5, §12)."""

from __future__ import annotations

import json
import time

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import InvalidRequest, JobContext, JobNotFound, Limits, MemoryStore
from arcp_trio.testing import open_peer, open_peers
from arcp_trio.wire.json import Json
from tests.footprint import tasks
from tests.inside import set_batch_frames
from tests.protocol.support import answers, text_of
from tests.reading import close_code
from tests.stage import BOB, make_runtime


def nested(levels: int) -> str:
    """A frame of so many levels, counted from the frame itself."""
    within = levels - 2  # the frame and its payload
    return text_of("job.submit", {"agent": "echo", "input": "@"}).replace(
        '"@"', "[" * within + "]" * within
    )


def with_input(text: str) -> str:
    """A submit whose input is written like this."""
    return text_of("job.submit", {"agent": "echo", "input": "@"}).replace('"@"', text)


UNREADABLE: dict[str, str | bytes] = {
    "empty": "",
    "blank": " \n",
    "not JSON": "hello",
    "half a frame": '{"arcp":"1.1","typ',
    "an array": "[]",
    "an array of frames": f"[{text_of('job.submit', {'agent': 'echo'})}]",
    "null": "null",
    "a number": "7",
    "a string": '"{}"',
    "an empty object": "{}",
    "two frames": text_of("session.x", id=None) + text_of("session.x", id=None),
    "an id of another type": text_of("job.submit", {"agent": "echo"}, id=7),
    "no id": text_of("job.submit", {"agent": "echo"}, id=None),
    "an empty id": text_of("job.submit", {"agent": "echo"}, id=""),
    "an endless id": text_of("job.submit", {"agent": "echo"}, id="x" * 10_000),
    "an id with a surrogate": text_of("job.submit", {"agent": "echo"}, id="\ud800"),
    "binary": b"\x00\xff\x00",
    "JSON in a binary frame": text_of("job.submit", {"agent": "echo"}).encode(),
    "10,000 arrays": "[" * 10_000 + "]" * 10_000,
    "10,000 arrays without an end": "[" * 10_000,
}
"""Frames that are nobody's request as far as one can see."""

MALFORMED: dict[str, str | bytes] = {
    "no version": text_of("job.submit", {"agent": "echo"}, arcp=None),
    "version 2": text_of("job.submit", {"agent": "echo"}, arcp="2"),
    "version 1.0": text_of("job.submit", {"agent": "echo"}, arcp="1.0"),
    "a version that is a number": text_of("job.submit", {"agent": "echo"}, arcp=1.1),
    "no type": text_of("", {"agent": "echo"}, type=None),
    "an empty type": text_of("", {"agent": "echo"}),
    "a type that is a list": text_of("", {"agent": "echo"}, type=["job.submit"]),
    "no payload": '{"arcp":"1.1","id":"x1","type":"job.submit"}',
    "a null payload": '{"arcp":"1.1","id":"x1","type":"job.submit","payload":null}',
    "a payload that is a number": text_of("job.cancel", 7),
    "a payload that is a list": text_of("job.submit", [{"agent": "echo"}]),
    "a payload that is a string": text_of("job.submit", '{"agent":"echo"}'),
    "a job_id that is a number": text_of("job.cancel", {"job_id": "job_x"}, job_id=7),
    "an event_seq that is a string": text_of("session.ack", {}, event_seq="7"),
    "an event_seq beyond 64 bits": text_of("session.ack", {}, event_seq=2**64),
    "a session_id that is an object": text_of("job.submit", {"agent": "echo"}, session_id={}),
    "65 levels": nested(65),
    "100,000 levels": nested(100_000),
    "100,000 objects": with_input('{"a":' * 100_000 + "1" + "}" * 100_000),
    "NaN": with_input("NaN"),
    "Infinity": with_input("Infinity"),
    "-Infinity": with_input("[-Infinity]"),
    "a number without end": with_input("1e999"),
    "10^400": with_input("1" + "0" * 400),
    "a million digits": with_input("9" * 1_000_000),
    "an integer beyond 64 bits": with_input(str(2**63)),
    "a lone surrogate": with_input('"\\ud800"'),
    "a lone surrogate in a key": with_input('{"\\udfff": 1}'),
    "a control character": with_input('"\x01"'),
    "a comma too many": with_input("[1,]"),
    "a comment": with_input("1 /* one */"),
    "a leading zero": with_input("01"),
    "single quotes": with_input("'a'"),
    "a cancel without job": text_of("job.cancel"),
    "a cancel with a reason that is none": text_of("job.cancel", {"job_id": "j", "reason": 7}),
    "a submit without agent": text_of("job.submit", {"input": 1}),
    "an agent that is null": text_of("job.submit", {"agent": None}),
    "a ping without nonce": text_of("session.ping"),
    "a ping with a number for a nonce": text_of("session.ping", {"nonce": 1}),
    "a pong without nonce": text_of("session.pong"),
    "an ack without number": text_of("session.ack"),
    "an ack of a string": text_of("session.ack", {"last_processed_seq": "1"}),
    "an ack of true": text_of("session.ack", {"last_processed_seq": True}),
    "an ack of a fraction": text_of("session.ack", {"last_processed_seq": 1.5}),
    "an ack below zero": text_of("session.ack", {"last_processed_seq": -1}),
    "a close with a number for a reason": text_of("session.close", {"reason": 7}),
    "a bye with a number for a reason": text_of("session.bye", {"reason": 7}),
    "an unknown session type": text_of("session.x"),
    "an unknown job type": text_of("job.x", {"agent": "echo"}),
    "a type of the runtime": text_of("session.closed"),
}
"""Frames with an id of "x1" that can be read, and are wrong."""


@pytest.mark.parametrize("name", [*UNREADABLE, *MALFORMED])
@pytest.mark.spec("12-5", "12-8", "5-1", "1.0/4.1-1", "1.0/5.1-8", "1.0/5.2-2")
async def test_a_malformed_frame_is_answered_and_hurts_nobody(
    name: str, autojump_clock: MockClock
) -> None:
    """INVALID_REQUEST, in its place between the answers to the submits around it."""
    bad, request_id = (UNREADABLE | MALFORMED)[name], None if name in UNREADABLE else "x1"
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        before = await peer.send("job.submit", {"agent": "echo", "input": "before"})
        await peer.send_raw(bad)
        after = await peer.send("job.submit", {"agent": "echo", "input": "after"})
        first, error, last = await answers(peer, 3)
        assert error["type"] == "session.error"
        assert error["payload"]["code"] == "INVALID_REQUEST"
        assert error["payload"]["retryable"] is False
        assert error["payload"].get("request_id") == request_id
        assert len(error["payload"]["message"]) < 1_000
        assert (first["payload"]["request_id"], last["payload"]["request_id"]) == (before, after)
        for frame, result in ((first, "before"), (last, "after")):
            end = await peer.until_terminal(frame["payload"]["job_id"])
            assert end["payload"]["result"] == result


@pytest.mark.parametrize(
    "text", [nested(64), with_input(str(2**63 - 1)), with_input(str(-(2**63)))]
)
@pytest.mark.spec("1.0/5.2-2", "1.0/5.2-1")
async def test_what_is_just_within_the_bounds_is_taken(
    text: str, autojump_clock: MockClock
) -> None:
    """Sixty-four levels, and integers of signed 64 bits, come back as they were."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.send_raw(text)
        job = await peer.answer("job.accepted", "x1")
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["result"] == json.loads(text)["payload"]["input"]


IGNORED_FIELDS = {
    "anything": 1,
    "timestamp": None,
    "extensions": {"x-vendor.acme": {"optional": False}},
    "deep": json.loads("[" * 500 + "]" * 500),
    "trace_id": None,
    "job_id": None,
    "event_seq": None,
    "session_id": None,
    "": {"": [None]},
}


@pytest.mark.parametrize("field", IGNORED_FIELDS)
@pytest.mark.spec("5-2")
async def test_unknown_and_null_fields_are_ignored(field: str, autojump_clock: MockClock) -> None:
    """A top-level field that nobody knows, or an optional one that is null, changes nothing."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        request = await peer.send("job.submit", {"agent": "echo"}, **{field: IGNORED_FIELDS[field]})
        await peer.answer("job.accepted", request)


@pytest.mark.spec("5-2")
async def test_unknown_fields_of_payloads_are_ignored(autojump_clock: MockClock) -> None:
    """At any level of any message, whatever is in them."""
    extra: Json = {"x": [None, {"y": 1}]}
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello(unknown=extra, client={"name": "c", **extra})
        job = await peer.submit("sleeper", lease_constraints=extra, **extra)
        await peer.send("session.ping", {"nonce": "n", **extra})
        await peer.expect("session.pong", ping_nonce="n")
        await peer.send("job.cancel", {"job_id": job["job_id"], **extra})
        await peer.expect("job.cancelled")
        await peer.until_terminal(job["job_id"])
        await peer.send("session.close", extra)
        await peer.expect("session.closed")


@pytest.mark.parametrize(
    "kind", ["x-vendor.acme.hello", "x-vendor", "x.future", "sessions", "job", "future", "s" * 256]
)
async def test_types_of_other_namespaces_are_nobodys_business(
    kind: str, autojump_clock: MockClock
) -> None:
    """They are not answered, whatever is in them; what follows is."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.send(kind, {"agent": 7, "job_id": []})
        await peer.submit("echo")
        assert not peer.seen


@pytest.mark.parametrize("field", ["agent", "input"])
async def test_of_a_field_given_twice_the_last_counts(
    field: str, autojump_clock: MockClock
) -> None:
    """Everywhere the same one, so that a frame has one meaning."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        text = text_of("job.submit", {"agent": "echo", "input": 1})
        first = {"agent": '"agent": "nobody", "agent"', "input": '"input": 2, "input"'}[field]
        await peer.send_raw(text.replace(f'"{field}"', first).replace('"id"', '"id": "x0", "id"'))
        job = await peer.answer("job.accepted", "x1")
        assert (await peer.until_terminal(job["job_id"]))["payload"]["result"] == 1


@pytest.mark.parametrize("where", ["$", "$.payload", "$.payload.input", "broken"])
async def test_a_million_keys_take_seconds_at_most(where: str, autojump_clock: MockClock) -> None:
    """Wherever they stand, also in a frame that has to be looked at twice."""
    keys = ",".join(f'"{n}":0' for n in range(1_000_000))
    text = {
        "$": text_of("session.x", **{"@": 0}).replace('"@": 0', keys),
        "$.payload": text_of("session.x", {"@": 0}).replace('"@": 0', keys),
        "$.payload.input": text_of("job.submit", {"input": {"@": 0}}).replace('"@": 0', keys),
        "broken": text_of("session.x", {"@": 0}).replace('"@": 0', keys + ',"n":NaN'),
    }[where]
    async with (
        make_runtime(limits=Limits(frame_bytes_in=2**24)) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        begun = time.perf_counter()
        await peer.send_raw(text)
        error = await peer.expect("session.error", request_id="x1")
        assert time.perf_counter() - begun < 20
        assert error["payload"]["code"] == "INVALID_REQUEST"


async def test_a_frame_too_big_ends_its_socket_and_nothing_else(autojump_clock: MockClock) -> None:
    """At the limit it is read, one byte over ends the socket with 1009; the session goes on."""
    most = 4 * 2**20
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        job = await peer.submit("sleeper")
        text = text_of("session.x", {"padding": "@"})
        await peer.send_raw(text.replace("@", "x" * (most - len(text) + 1)))
        await peer.expect("session.error", request_id="x1")
        await peer.send_raw(text.replace("@", "x" * (most - len(text) + 2)))
        assert await close_code(peer) == 1009
        again = await peers.connect()
        await again.hello(resume=peer.resume_from())
        await again.send("job.cancel", {"job_id": job["job_id"]})
        assert (await again.until_terminal(job["job_id"]))["payload"]["code"] == "CANCELLED"


@pytest.mark.parametrize("bad", ["", "session.x", "binary"])
@pytest.mark.spec("6.3-2")
async def test_a_flood_of_malformed_frames_ends_its_socket_and_nothing_else(
    bad: str, autojump_clock: MockClock
) -> None:
    """Each is answered up to the limit; past it comes 1008, and the session can be resumed."""
    floods: dict[str, str | bytes] = {"": "", "session.x": MALFORMED["an unknown session type"]}
    frame = floods.get(bad, b"\x00")
    async with (
        make_runtime(limits=Limits(malformed_frames=20)) as runtime,
        open_peers(runtime) as peers,
    ):
        peer = await peers.connect()
        await peer.hello()
        job = await peer.submit("sleeper")
        for _ in range(3):  # a slow stream of them never adds up
            for _ in range(20):
                await peer.send_raw(frame)
                await peer.expect("session.error", code="INVALID_REQUEST")
            await trio.sleep(10.1)
        for _ in range(21):
            await peer.send_raw(frame)
        assert await close_code(peer) == 1008
        again = await peers.connect()
        await again.hello(resume=peer.resume_from())
        await again.send("job.cancel", {"job_id": job["job_id"]})
        assert (await again.until_terminal(job["job_id"]))["payload"]["code"] == "CANCELLED"


RUNTIMES_OWN = (
    "session.welcome",
    "session.error",
    "session.closed",
    "session.jobs",
    "job.accepted",
    "job.cancelled",
    "job.subscribed",
    "job.event",
    "job.result",
    "job.error",
)


@pytest.mark.parametrize("kind", RUNTIMES_OWN)
async def test_a_client_cannot_speak_as_a_runtime(kind: str, autojump_clock: MockClock) -> None:
    """What only a runtime may say is INVALID_REQUEST from anybody, and no job notices."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        job = (await peer.submit("sleeper"))["job_id"]
        body: Json = {
            "job_id": job,
            "final_status": "success",
            "result": "forged",
            "code": "INTERNAL_ERROR",
            "message": "forged",
            "retryable": True,
            "kind": "log",
            "ts": "2026-01-01T00:00:00.000Z",
            "body": {"level": "info", "message": "forged"},
        }
        request = await peer.send(kind, body, job_id=job, event_seq=1)
        with pytest.raises(InvalidRequest):
            await peer.answer(kind, request)
        await trio.sleep(20)
        await peer.send("job.cancel", {"job_id": job})
        end = await peer.until_terminal(job)
        assert (end["payload"]["code"], end["event_seq"]) == ("CANCELLED", 1)


# -- whose frame it is


@pytest.mark.spec("6.6-5")
async def test_a_frame_that_names_another_session_acts_on_its_own(
    autojump_clock: MockClock,
) -> None:
    """The connection says whose frame it is; what the envelope claims reaches nobody else."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        theirs, ours = await peers.connect(), await peers.connect()
        await theirs.hello(token=BOB)
        await ours.hello()
        job = (await theirs.submit("sleeper"))["job_id"]
        result = (await theirs.submit("echo"))["job_id"]
        await theirs.until_terminal(result)
        their_resume, claimed = theirs.resume_from(), theirs.session_id

        request = await ours.send("job.cancel", {"job_id": job}, session_id=claimed)
        with pytest.raises(JobNotFound):
            await ours.answer("job.cancelled", request)
        request = await ours.send("job.submit", {"agent": "echo"}, session_id=claimed)
        own = await ours.answer("job.accepted", request)
        await ours.until_terminal(own["job_id"])
        await ours.send("session.ack", {"last_processed_seq": 1}, session_id=claimed)
        await ours.send("session.ping", {"nonce": "ours"}, session_id=claimed)
        await ours.expect("session.pong", ping_nonce="ours")
        await ours.send("session.close", session_id=claimed)
        await ours.expect("session.closed", session_id=str(ours.session_id))

        # Whoever was named is still there, with all its events, and heard nothing of this.
        await theirs.drop()
        again = await peers.connect()
        await again.hello(token=BOB, resume=their_resume | {"last_event_seq": 0})
        await again.send("job.cancel", {"job_id": job})
        assert (await again.until_terminal(job))["payload"]["code"] == "CANCELLED"
        replayed = ["job.accepted", "job.accepted", "job.result"]
        assert [frame["type"] for frame in again.seen] == [*replayed, "job.cancelled"]


# -- order


@pytest.mark.spec("6.7-1", "6.7-2")
async def test_a_close_waits_for_the_answers_before_it(autojump_clock: MockClock) -> None:
    """A job submitted right before it is accepted first, and its principal may cancel it."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        peer, other = await peers.connect(), await peers.connect()
        await peer.hello()
        await other.hello()
        await peer.transport.send(
            [
                text_of("job.submit", {"agent": "sleeper"}, id="s1").encode(),
                text_of("job.submit", {"agent": "nobody"}, id="s2").encode(),
                text_of("session.close", id="s3").encode(),
            ]
        )
        accepted, refused = await answers(peer, 2)
        assert (accepted["type"], accepted["payload"]["request_id"]) == ("job.accepted", "s1")
        assert refused["payload"]["request_id"] == "s2"
        await peer.expect("session.closed")
        assert await close_code(peer) == 1000
        await other.send("job.cancel", {"job_id": accepted["job_id"]})
        await other.expect("job.cancelled", job_id=accepted["job_id"])


@pytest.mark.spec("6.7-1")
async def test_nothing_comes_behind_the_close(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """However far a client is behind, `session.closed` is the last frame it is sent."""
    set_batch_frames(monkeypatch, 1)  # so that there is always more to be done next
    async with make_runtime(limits=Limits(tail_frames=1)) as runtime, open_peer(runtime) as peer:

        @runtime.agent("talker")
        async def talker(job: JobContext) -> Json:
            for n in range(1_000):
                await job.log(str(n))
                await trio.lowlevel.checkpoint()
            return None

        await peer.hello()
        for _ in range(3):
            await peer.submit("talker")
        await peer.send("session.close")
        assert await close_code(peer) == 1000
        assert peer.seen[-1]["type"] == "session.closed"


async def test_what_waits_behind_a_slow_submit_is_bounded(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Past `outbox_items` submits without an answer none is taken; in the end each is answered."""

    async def key(*_args: object) -> None:
        await trio.sleep(50)

    monkeypatch.setattr(MemoryStore, "key", key)
    limits = {"outbox_items": 20, "inbox_items": 20}
    async with make_runtime(limits=Limits(**limits)) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        before = tasks()
        requests = [await peer.send("job.submit", {"agent": "echo", "idempotency_key": "k"})]
        requests += [await peer.send("job.submit", {"agent": "nobody"}) for _ in range(80)]
        await wait_all_tasks_blocked()
        assert tasks() <= before + 20
        answered = await answers(peer, len(requests))
        assert [frame["payload"]["request_id"] for frame in answered] == requests
