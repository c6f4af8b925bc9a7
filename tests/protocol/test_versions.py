"""Versions of the protocol: a client is answered in its own."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from arcp_trio import InvalidRequest
from arcp_trio.testing import Peer, open_peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.reading import close_code
from tests.stage import make_runtime


@pytest.mark.spec("1.0/5.1-1")
async def test_a_client_is_answered_in_its_version(autojump_clock: MockClock) -> None:
    """Every frame of a connection that began with "1" says "1", errors included."""
    async with make_runtime() as runtime, open_peers(runtime) as peers:
        for version in ("1", "1.1"):
            peer = await peers.connect()
            seen = await say_everything(peer, version)
            assert {frame["type"] for frame in seen} == SAID
            assert {frame["arcp"] for frame in seen} == {version}


SAID = {
    "session.welcome",
    "session.ping",
    "session.pong",
    "session.error",
    "session.closed",
    "job.accepted",
    "job.cancelled",
    "job.result",
    "job.error",
}


async def say_everything(peer: Peer, version: str) -> list[Frame]:
    """Make the runtime send all it can to a client of this version, and return it."""
    hello: Json = {
        "client": {"name": "c"},
        "auth": {"token": "test-token"},
        "capabilities": {"features": ["heartbeat"]},
    }
    peer.answer_pings = False
    await peer.send("session.hello", hello, arcp=version)
    welcome = await peer.expect("session.welcome")
    await peer.send("job.submit", {"agent": "sleeper"}, arcp=version)
    accepted = await peer.expect("job.accepted")
    await peer.send("job.submit", {"agent": "echo"}, arcp=version)
    result = await peer.expect("job.result")
    ping = await peer.expect("session.ping")
    await peer.send("session.ping", {"nonce": "n"}, arcp=version)
    pong = await peer.expect("session.pong")
    await peer.send_raw("{}")
    await peer.send("job.cancel", {"job_id": accepted["job_id"]}, arcp=version)
    end = await peer.expect("job.error")
    await peer.send("session.close", arcp=version)
    closed = await peer.expect("session.closed")
    return [welcome, accepted, result, ping, pong, end, closed, *peer.seen]


@pytest.mark.parametrize("version", ["2", "1.0", "1.2", "", "1.1 ", "v1.1", None, 1, 1.1])
async def test_no_session_in_another_version(version: Json, autojump_clock: MockClock) -> None:
    """A hello of an unknown version is refused, and the socket closed."""
    async with make_runtime() as runtime, open_peer(runtime) as peer:
        with pytest.raises(InvalidRequest, match=r"\$\.arcp"):
            await hello_in(peer, version)
        assert await close_code(peer) == 1008


async def hello_in(peer: Peer, version: Json) -> None:
    """Say hello in this version of the protocol."""
    payload = {"client": {"name": "c"}, "auth": {"token": "test-token"}}
    await peer.send("session.hello", payload, arcp=version, id="h1")
    await peer.answer("session.welcome", "h1")
