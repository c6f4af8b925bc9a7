"""Frames that cannot be read, or are wrong, or too large (§5, §12)."""

from __future__ import annotations

import json
import time

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Limits
from arcp_trio.testing import open_peer, open_peers
from tests.protocol.support import answers, text_of
from tests.reading import close_code
from tests.stage import make_runtime


def nested(levels: int) -> str:
    """Return a frame of this many levels, the frame itself included."""
    within = levels - 2  # the frame and its payload
    return text_of("job.submit", {"agent": "echo", "input": "@"}).replace(
        '"@"', "[" * within + "]" * within
    )


def with_input(text: str) -> str:
    """Return a submit whose input is this text."""
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
"""Frames whose request cannot be identified."""


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
"""Frames with the id "x1" that can be read, and are malformed."""


@pytest.mark.parametrize("name", [*UNREADABLE, *MALFORMED])
@pytest.mark.spec("12-5", "12-8", "5-1", "1.0/4.1-1", "1.0/5.1-8", "1.0/5.2-2")
async def test_a_malformed_frame_is_answered_and_hurts_nobody(
    name: str, autojump_clock: MockClock
) -> None:
    """A malformed frame is INVALID_REQUEST, in order between the answers around it."""
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
    """64 levels and signed 64-bit integers come back unchanged."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.send_raw(text)
        job = await peer.answer("job.accepted", "x1")
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["result"] == json.loads(text)["payload"]["input"]


@pytest.mark.parametrize("where", ["$", "$.payload", "$.payload.input", "broken"])
async def test_a_million_keys_take_seconds_at_most(where: str, autojump_clock: MockClock) -> None:
    """A frame with a million keys anywhere is answered within seconds."""
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
    """A frame a byte too large closes the socket with 1009, and the session can be resumed."""
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
    """Past `malformed_frames` the socket is closed with 1008, and the session can be resumed."""
    floods: dict[str, str | bytes] = {"": "", "session.x": MALFORMED["an unknown session type"]}
    frame = floods.get(bad, b"\x00")
    async with (
        make_runtime(limits=Limits(malformed_frames=20)) as runtime,
        open_peers(runtime) as peers,
    ):
        peer = await peers.connect()
        await peer.hello()
        job = await peer.submit("sleeper")
        for _ in range(3):  # a slow stream never reaches the limit
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
