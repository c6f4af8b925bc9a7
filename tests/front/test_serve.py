"""Serving a runtime that echoes: the accept loop, and the end of each connection."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.front.door import Caller, Door
from arcp_trio.front.serve import serve, serve_stream
from arcp_trio.transport import TransportClosed, connect, memory_streams
from tests.front.echo import EchoRuntime, assert_echoes, client_of, serving
from tests.transport.peers import CLOSE, PING, TEXT, RawPeer, closing, frame, request

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


# What the nth peer sends, piece by piece, before it closes or resets the connection.
ATTACKS: dict[str, Callable[[int], list[bytes]]] = {
    "nothing": lambda _: [],
    "garbage": lambda _: [b"\x00\xff\r\n\r\n this is not HTTP"],
    "part of a request": lambda n: [request()[: n % len(request())]],
    "just a request": lambda _: [request()],
    "plain HTTP": lambda _: [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"],
    "wrong path": lambda _: [request("/other")],
    "part of a frame": lambda n: [request(), frame(TEXT, b"x" * 200)[: n % 200]],
    "unread echoes": lambda _: [request(), frame(TEXT, b"x" * 900) * 100],
    "oversized": lambda _: [request(), frame(TEXT, b"x" * 1001)],
    "broken frames": lambda n: [request(), bytes((n % 256,)) * 200],
    "pings after bye": lambda _: [request(), frame(TEXT, b"bye"), frame(PING) * 10, farewell()],
    "more after the close": lambda _: [request(), farewell() + frame(PING) + frame(TEXT, b"x")],
}


def farewell() -> bytes:
    """Return a client's Close."""
    return frame(CLOSE, closing(1000))


@pytest.mark.real_tcp
@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_no_peer_harms_another(attack: Callable[[int], list[bytes]]) -> None:
    """A connection goes on while 200 others commit the same misdeed, and each of them ends."""
    async with serving() as (runtime, port), client_of(port) as good:
        await assert_echoes(good, "before")
        for n in range(0, 200, 10):
            async with trio.open_nursery() as attackers:
                for m in range(n, n + 10):
                    attackers.start_soon(assail, port, attack(m), m)
                await assert_echoes(good, f"meanwhile {n}")
        async with client_of(port) as another:
            await assert_echoes(another, "after")
        while len(runtime.nursery.child_tasks) > 1:  # the attackers' connections end as well
            await assert_echoes(good, "still")
        assert runtime.failures == []


async def assail(port: int, pieces: list[bytes], n: int) -> None:
    """Send `pieces` one by one and end the connection by a reset or a close, having read or not."""
    with trio.socket.socket() as sock:
        await sock.connect(("127.0.0.1", port))
        for piece in pieces:
            await sock.send(piece)
            if n % 3 == 0:
                with trio.move_on_after(0.001):
                    await sock.recv(65536)
        if n % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


@pytest.mark.real_tcp
async def test_pings_that_cross_with_a_close_harm_nobody() -> None:
    """A hundred clients that ping at the instant of the server's Close all get a clean close."""
    async with serving() as (runtime, port), client_of(port) as good:

        async def bystander() -> None:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                peer = RawPeer(stream)
                await peer.shake_hands()
                await peer.send(TEXT, b"bye")
                assert await peer.receive() == (CLOSE, closing(1000))
                await peer.send(PING, b"are you there?")
                await peer.stream.send_all(farewell())
                assert await peer.read_to_end() == b""

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(bystander)
        await assert_echoes(good, "alive")
        assert runtime.failures == []


@pytest.mark.real_tcp
async def test_a_bug_ends_its_own_connection_at_once() -> None:
    """An exception of a connection reaches the runtime, and closes only that connection."""
    async with serving() as (runtime, port), client_of(port) as good, client_of(port) as unlucky:
        await unlucky.send([b"bug"])
        with pytest.raises(TransportClosed):
            await unlucky.receive()
        await assert_echoes(good, "alive")
        (failure,) = runtime.failures
        assert isinstance(failure, RuntimeError)


@pytest.mark.real_tcp
async def test_cancelling_serve_leaves_connections_alone() -> None:
    """Cancelling `serve` closes the port and leaves open connections alone."""
    async with trio.open_nursery() as connections, trio.open_nursery() as nursery:
        with trio.fail_after(10):
            runtime = EchoRuntime(connections)
            accepting = trio.CancelScope()

            async def cancellable(
                task_status: trio.TaskStatus[list[trio.SocketListener]],
            ) -> None:
                with accepting:
                    async with trio.open_nursery() as nursery:
                        task_status.started(await nursery.start(serve, runtime, "127.0.0.1", 0))

            listeners = await nursery.start(cancellable)
            port = listeners[0].socket.getsockname()[1]
            async with client_of(port) as client:
                await assert_echoes(client, "before")
                accepting.cancel()
                await wait_all_tasks_blocked(0.01)
                with pytest.raises(OSError, match="connect"):
                    await trio.open_tcp_stream("127.0.0.1", port)
                await assert_echoes(client, "after")
        connections.cancel_scope.cancel()


@pytest.mark.real_tcp
async def test_connections_are_named_after_their_peer() -> None:
    """The task of a connection has the address of its peer in its name."""
    async with serving() as (runtime, port), client_of(port) as client:
        await assert_echoes(client, "hello")
        (name,) = runtime.names
        assert name.startswith("connection from 127.0.0.1:")


@pytest.mark.real_tcp
async def test_the_kernel_looks_after_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's keep-alive is on, so that a vanished client does not stay for ever."""
    accepted: list[int] = []
    receive = Door.receive

    async def look(door: Door, stream: trio.SocketStream, caller: Caller) -> None:
        accepted.append(stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        await receive(door, stream, caller)

    monkeypatch.setattr(Door, "receive", look)
    async with serving() as (_runtime, port), client_of(port) as client:
        await assert_echoes(client, "hello")
    assert accepted == [1]


@pytest.mark.parametrize("sent", [b"", b"GET /arcp HTTP/1.1\r\n"])
async def test_a_connection_that_says_nothing_is_closed_in_time(
    sent: bytes, autojump_clock: MockClock
) -> None:
    """A connection without a complete handshake is closed `handshake_seconds` after its accept."""
    near, far = memory_streams()
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        await far.send_all(sent)
        runtime.start_connection(lambda: serve_stream(runtime, near, "mute"), "mute")
        assert await far.receive_some() == b""
    assert trio.current_time() == 10
    assert runtime.failures == []


async def test_the_deadline_goes_on_to_the_runtime(autojump_clock: MockClock) -> None:
    """The runtime gets the deadline that began with the accept, and no other."""
    near, far = memory_streams()
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        runtime.start_connection(lambda: serve_stream(runtime, near, "late"), "late")
        await trio.sleep(7)
        async with connect(far, max_bytes=1000) as client:
            await assert_echoes(client, "hello")
            assert runtime.deadlines == [10]
            await trio.sleep(60)
            await assert_echoes(client, "still here: the rest is the runtime's business")
            await client.close()


async def test_an_oversized_message_and_silence_end_the_socket(autojump_clock: MockClock) -> None:
    """A peer that gets 1009 and does not close is closed."""
    near, far = memory_streams()
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        runtime.start_connection(lambda: serve_stream(runtime, near, "big"), "big")
        peer = RawPeer(far)
        await peer.shake_hands()
        await peer.send(TEXT, bytes(1001))
        assert (await peer.read_to_end())[2:4] == closing(1009)
    assert runtime.attached == 0


async def test_the_runtime_learns_whether_a_connection_is_private(
    autojump_clock: MockClock,
) -> None:
    """A transport is private if `serve_stream` was told so."""
    for private in (False, True):
        near, far = memory_streams()
        async with trio.open_nursery() as nursery:
            runtime = EchoRuntime(nursery)
            serve = partial(serve_stream, runtime, near, "peer", private=private)
            runtime.start_connection(serve, "peer")
            async with connect(far, max_bytes=1000) as client:
                await assert_echoes(client, "hello")
                assert not client.private
                await client.close()
        assert runtime.private == [private]
