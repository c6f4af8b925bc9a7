"""The bounds on a frame: its size before and after the welcome, and its nesting."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext
from arcp_trio.testing import Peer
from arcp_trio.wire import envelope
from arcp_trio.wire.json import JsonObject
from tests.metrics import scrape
from tests.reading import close_code
from tests.sessions.support import open_stage
from tests.stage import hello_payload

MIB = 1024 * 1024
FIRST = 64 * 1024


def hello_of(size: int, filling: str = "x") -> str:
    """Return a hello of this many bytes."""
    frame = {"arcp": "1.1", "id": "first", "type": "session.hello", "payload": hello_payload()}
    left = size - len(json.dumps(frame | {"filling": ""}))
    times, rest = divmod(left, len(filling.encode()))
    return json.dumps(frame | {"filling": filling * times + "." * rest}, ensure_ascii=False)


async def refused_for_its_size(peer: Peer) -> None:
    """Check that the client is told of the limit and closed."""
    error = (await peer.receive())["payload"]
    assert (error["code"], error["retryable"]) == ("INTERNAL_ERROR", True)
    assert error["details"] == {"limit": "first_frame_bytes", "max": FIRST}
    assert await close_code(peer) == 1009


# -- the first frame


@pytest.mark.parametrize("filling", ["x", "é", "💶"])
async def test_the_first_frame_is_bounded_in_bytes(filling: str, autojump_clock: MockClock) -> None:
    """A hello of `first_frame_bytes` is served; a byte more is refused by that name."""
    async with open_stage() as stage:
        peer = await stage.connect()
        await peer.send_raw(hello_of(FIRST, filling))
        assert (await peer.receive())["type"] == "session.welcome"
        peer = await stage.connect()
        await peer.send_raw(hello_of(FIRST + 1, filling))
        await refused_for_its_size(peer)


@pytest.mark.parametrize("text", ["[" * 4 * MIB, "{" * (FIRST + 1), b"x" * (FIRST + 1)])
async def test_it_is_refused_before_it_is_read(
    text: str | bytes, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hello that is too large is refused without being decoded."""
    async with open_stage() as stage:
        peer = await stage.connect()
        monkeypatch.setattr(envelope, "decode", None)
        await peer.send_raw(text)
        await refused_for_its_size(peer)
        assert scrape(stage.runtime)("refusals_total", reason="first_frame_bytes") == 1


async def test_behind_the_welcome_there_is_another_bound(autojump_clock: MockClock) -> None:
    """After the welcome frames may be larger, also on a connection that resumes."""
    async with open_stage() as stage:

        @stage.runtime.agent("measure")
        async def measure(job: JobContext) -> int:
            return len(job.input)

        peer = await stage.welcomed()
        for _ in range(2):
            job = await peer.submit("measure", "x" * 3 * MIB)
            assert (await peer.until_terminal(job["job_id"]))["payload"]["result"] == 3 * MIB
            await peer.drop()
            await wait_all_tasks_blocked()
            peer = await stage.resumed(peer.resume_from())


# -- later frames


@pytest.mark.parametrize("filling", ["x", "é", "💶"])
async def test_a_frame_is_bounded_in_bytes(filling: str, autojump_clock: MockClock) -> None:
    """A frame past `frame_bytes_in` closes the connection; the session can be resumed."""
    async with open_stage(frame_bytes_in=100_000) as stage:
        other = await stage.welcomed()
        peer = await stage.welcomed()
        frame = {
            "arcp": "1.1",
            "id": "large",
            "type": "x-test.ignored",
            "payload": {},
            "filling": "",
        }
        room = 100_000 - len(json.dumps(frame).encode())
        fits = filling * (room // len(filling.encode()))
        await peer.send_raw(json.dumps(frame | {"filling": fits}, ensure_ascii=False))
        await peer.submit("puppet")
        await peer.send_raw(json.dumps(frame | {"filling": fits + "xxxx"}, ensure_ascii=False))
        assert await close_code(peer) == 1009
        await stage.resumed(peer.resume_from())
        await other.submit("puppet")


# -- nesting


def nested(levels: int) -> str:
    """Return a ping of this many levels, its own two included."""
    inside = "[" * (levels - 2) + "]" * (levels - 2)
    frame = {"arcp": "1.1", "id": "deep", "type": "session.ping", "payload": {"nonce": "n"}}
    return json.dumps(frame).replace('"n"}', f'"n", "more": {inside}}}')


@pytest.mark.parametrize("depth", [64, 5])
@pytest.mark.parametrize("beyond", [1, 40_000])
async def test_nesting_is_bounded(depth: int, beyond: int, autojump_clock: MockClock) -> None:
    """A frame nested deeper than `json_depth` is malformed, and the session goes on."""
    async with open_stage(json_depth=depth) as stage:
        peer = await stage.welcomed()
        await peer.send_raw(nested(depth))
        await peer.expect("session.pong")
        await peer.send_raw(nested(depth + beyond))
        error = (await peer.expect("session.error", request_id="deep"))["payload"]
        assert error["code"] == "INVALID_REQUEST"
        assert "nested too deeply" in error["message"]
        await peer.submit("puppet")


async def test_values_are_bounded(autojump_clock: MockClock) -> None:
    """A frame of more than `json_values` is malformed, and the refusal names the limit."""
    async with open_stage(json_values=1_000) as stage:
        peer = await stage.welcomed()
        # The frame and its payload are values, too.
        for inside in ("1,1", "[1", '{"a":1', '"a","b"'):
            more = {"[": "]", "{": "}"}.get(inside[0], "")
            within, beyond = ([f"{inside}{more}"] * count for count in (400, 1_000))
            await peer.send_raw(nested_values(within))
            await peer.expect("session.pong")
            await peer.send_raw(nested_values(beyond))
            error = (await peer.expect("session.error", request_id="many"))["payload"]
            assert error["code"] == "INVALID_REQUEST"
            assert "more than 1,000 values: the limit json_values is reached" in error["message"]
        await peer.send_raw(nested_values([r'"a,b\",[{,"'] * 5).replace(",b", ",b" * 10_000))
        await peer.expect("session.pong")
        await peer.submit("puppet")


def nested_values(items: list[str]) -> str:
    """Return a ping with these items in it."""
    frame = {"arcp": "1.1", "id": "many", "type": "session.ping", "payload": {"nonce": "n"}}
    return json.dumps(frame).replace('"n"}', f'"n", "more": [{",".join(items)}]}}')


HOSTILE: dict[str, Callable[[], str]] = {
    "arrays": lambda: ",".join(["[]"] * (4 * MIB // 3 - 100)),
    "arrays, as many as may be": lambda: ",".join(["[]"] * 124_000),
    "objects": lambda: ",".join(['{"a":1}'] * (MIB // 2 - 100)),
    "a deep hole": lambda: "[" * 100_000,
    "too deep": lambda: ",".join(["[" * 50 + "]" * 50] * 40_000 + ["[" * 80 + "]" * 80]),
    "keys": lambda: "{" + ",".join(f'"{n}":1' for n in range(350_000)) + "}",
    "a long number": lambda: "1" * 4_000_000,
    "long numbers": lambda: ",".join(["1" * 19] * 200_000),
    "escapes": lambda: '"' + r"\"" * 2_000_000 + '"',
    "surrogates": lambda: ",".join([r'"\ud800"'] * 400_000),
}
"""The frames that cost the most work to decode, as large as a frame may be."""


@pytest.mark.parametrize("what", HOSTILE)
async def test_the_worst_frame_is_answered_and_nobody_minds(
    what: str, autojump_clock: MockClock
) -> None:
    """A frame that is costly to decode is answered, and other sessions are served."""
    async with open_stage() as stage:
        peer, other = await stage.welcomed(), await stage.welcomed()
        submit: JsonObject = {"agent": "nobody", "input": None}
        text = json.dumps({"arcp": "1.1", "id": "x", "type": "job.submit", "payload": submit})
        text = text.replace("null", f"[{HOSTILE[what]()}]")
        assert 1_000 < len(text) <= 4 * MIB
        await peer.send_raw(text)
        error = (await peer.expect("session.error", request_id="x"))["payload"]
        assert error["code"] in ("INVALID_REQUEST", "AGENT_NOT_AVAILABLE")
        assert len(error["message"]) < 1_000
        for served in (peer, other):
            await served.submit("sleeper", 0)


# -- what is sent


async def test_a_warning_that_is_too_large_is_left_out(autojump_clock: MockClock) -> None:
    """A job whose lease grants nothing runs, even if no frame may be so large as to say so."""
    async with open_stage(frame_bytes_out=1_000) as stage:
        peer = await stage.welcomed()
        idle = [f"relative{n}/{'x' * 60}" for n in range(9)]
        job = await peer.submit("puppet", lease_request={"fs.read": idle})
        await stage.puppet.finish()
        assert (await peer.until_terminal(job["job_id"]))["type"] == "job.result"
