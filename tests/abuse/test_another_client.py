"""A WebSocket client of another library against the real server."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
import trio
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as sync_connect

from arcp_trio.testing.frames import Frame, parse_frame
from tests.abuse.support import MAX_BYTES, agents, hello_payload, serving
from tests.protocol.support import text_of
from tests.stage import make_runtime

pytestmark = pytest.mark.real_tcp

MIB = 1024 * 1024


def cut(text: str, size: int) -> Iterator[str]:
    """Return the text in pieces, each of which becomes a fragment."""
    return (text[at : at + size] for at in range(0, len(text), size))


def submit(text: str) -> str:
    """Return a submit that gets the text back."""
    return text_of("job.submit", {"agent": "echo", "input": text})


def receive(client: ClientConnection, kind: str) -> Frame:
    """Receive the next message, which must be of this type."""
    message = parse_frame(client.recv(timeout=30))
    assert message["type"] == kind
    return message


def result(client: ClientConnection) -> object:
    """Return the result of the job that was submitted last."""
    receive(client, "job.accepted")
    return receive(client, "job.result")["payload"]["result"]


def talk(port: int) -> None:
    """Send large and small messages, whole and in fragments, with pings; then leave."""
    # The library offers compression, which the server declines.
    with sync_connect(f"ws://127.0.0.1:{port}/arcp", max_size=MAX_BYTES) as client:
        assert client.protocol.extensions == []
        client.send(text_of("session.hello", hello_payload()))
        receive(client, "session.welcome")
        large = "é" * (MIB // 2 - 1000)
        for text in ("", "small", "x" * 65_536, large):
            client.send(submit(text))
            assert result(client) == text
            client.send(cut(submit(text), 5_000))
            assert result(client) == text
        client.send(cut(submit("one by one"), 1))
        pongs = [client.ping(b"%d" % n) for n in range(100)]
        assert result(client) == "one by one"
        assert all(pong.wait(10) for pong in pongs)
        client.send(submit("in binary").encode())
        assert receive(client, "session.error")["payload"]["code"] == "INVALID_REQUEST"
        client.send(text_of("session.close"))
        receive(client, "session.closed")
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=30)
        assert client.protocol.close_code == 1000


def leave(port: int, code: int) -> None:
    """Open a session and close the connection with this code, which must be answered in kind."""
    with sync_connect(f"ws://127.0.0.1:{port}/arcp") as client:
        client.send(text_of("session.hello", hello_payload()))
        receive(client, "session.welcome")
        client.send(submit("never mind"))
        client.close(code, "reason")
        assert client.protocol.close_rcvd is not None
        assert client.protocol.close_rcvd.code == code


def say_too_much(port: int) -> None:
    """Send a message in fragments that is larger than allowed and has no end."""
    with sync_connect(f"ws://127.0.0.1:{port}/arcp", close_timeout=1) as client:
        client.send(text_of("session.hello", hello_payload()))
        receive(client, "session.welcome")
        with pytest.raises(ConnectionClosed):
            client.send("x" * 10_000 for _ in range(MAX_BYTES))
        assert client.protocol.close_code == 1009


async def with_a_runtime(*clients: partial[None]) -> None:
    """Run these clients against one runtime at the same time, each in a thread."""
    with trio.fail_after(60):
        async with serving(make_runtime(agents)) as port, trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(trio.to_thread.run_sync, partial(client, port))


async def test_large_messages_fragments_and_pings() -> None:
    """Messages of any size, in any number of fragments, come back unchanged."""
    await with_a_runtime(*[partial(talk)] * 3)


async def test_close_codes() -> None:
    """Each close code is answered in kind, with a job under way."""
    codes = (1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999)
    await with_a_runtime(*[partial(leave, code=code) for code in codes])


async def test_an_endless_message() -> None:
    """The sender of an endless message is closed with 1009, while others are served."""
    await with_a_runtime(partial(say_too_much), partial(talk))
