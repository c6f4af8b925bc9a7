"""Connections without a session: how many there may be, and which are closed."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Limits, Runtime, StaticTokens
from arcp_trio.front.serve import serve
from arcp_trio.front.waiting import WaitingRoom
from arcp_trio.testing.peer import TEST_TOKEN, Peer
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.transport import connect
from tests.front.echo import EchoRuntime, knock
from tests.transport.peers import TEXT, RawPeer, frame, request


async def is_open(stream: trio.abc.Stream) -> bool:
    """Return whether the server has not closed a stream."""
    await wait_all_tasks_blocked()
    with trio.move_on_after(0.01):
        await stream.receive_some()
        return False
    return True


@pytest.mark.parametrize("sent", [b"", request()[:30]])
async def test_the_oldest_goes_at_once(sent: bytes, autojump_clock: MockClock) -> None:
    """When one connection too many comes, the one that waits longest is closed at once."""
    async with trio.open_nursery() as nursery:
        runtime, room = EchoRuntime(nursery), WaitingRoom(3)
        streams = []
        for _ in range(5):
            streams.append(knock(runtime, room=room))
            await streams[-1].send_all(sent)
            await wait_all_tasks_blocked()
        assert [await is_open(stream) for stream in streams] == [False, False, True, True, True]
        assert trio.current_time() < 1
        assert runtime.turned_away == ["connections_before_handshake"] * 2
        nursery.cancel_scope.cancel()


async def test_a_visitor_with_a_session_or_closed_does_not_wait(
    autojump_clock: MockClock,
) -> None:
    """Connections that have a session, or are closed, do not count."""
    async with trio.open_nursery() as nursery:
        runtime, room = EchoRuntime(nursery), WaitingRoom(1)
        welcomed = knock(runtime, room=room)
        peer = RawPeer(welcomed)
        await peer.shake_hands(along=frame(TEXT, b"hello"))
        assert await peer.receive() == (TEXT, b"hello")
        await knock(runtime, room=room).aclose()
        await wait_all_tasks_blocked()
        waiting = knock(runtime, room=room)
        assert await is_open(waiting)
        await knock(runtime, room=room).send_all(b"GET")
        assert not await is_open(waiting)
        await peer.send(TEXT, b"still here")
        assert await peer.receive() == (TEXT, b"still here")
        assert runtime.turned_away == ["connections_before_handshake"]
        nursery.cancel_scope.cancel()


async def test_a_websocket_without_a_session_waits_as_well(autojump_clock: MockClock) -> None:
    """A WebSocket without a hello counts as a connection without a session."""
    async with trio.open_nursery() as nursery:
        runtime, room = EchoRuntime(nursery), WaitingRoom(1)
        first = knock(runtime, room=room)
        await RawPeer(first).shake_hands()
        knock(runtime, room=room)
        assert not await is_open(first)
        assert runtime.attached == 0
        nursery.cancel_scope.cancel()


LATE_REFUSALS = {
    "no HTTP": (b"\r\n\r\n", ["request"]),
    "no place": (request("/elsewhere"), ["path"]),
    "a page": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", []),
}


@pytest.mark.parametrize(("sent", "reasons"), LATE_REFUSALS.values(), ids=LATE_REFUSALS)
async def test_an_answered_visitor_that_stays_past_the_deadline_is_counted_once(
    sent: bytes, reasons: list[str], autojump_clock: MockClock
) -> None:
    """The deadline closes a connection that was answered, and adds no second failure to it."""
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        stream = knock(runtime)
        await trio.sleep(9.5)
        await stream.send_all(sent)
    assert trio.current_time() == 10
    assert runtime.turned_away == reasons


@pytest.mark.parametrize(("sent", "reasons"), LATE_REFUSALS.values(), ids=LATE_REFUSALS)
async def test_an_answered_visitor_that_has_to_make_room_is_counted_once(
    sent: bytes, reasons: list[str], autojump_clock: MockClock
) -> None:
    """A connection that was answered and does not close makes room, without a second failure."""
    async with trio.open_nursery() as nursery:
        runtime, room = EchoRuntime(nursery), WaitingRoom(1)
        answered = knock(runtime, room=room)
        await answered.send_all(sent)
        await wait_all_tasks_blocked()
        waiting = knock(runtime, room=room)
        assert await is_open(waiting)
        assert runtime.turned_away == reasons
        nursery.cancel_scope.cancel()
    assert trio.current_time() < 0.1


@pytest.mark.real_tcp
async def test_a_flood_of_silent_connections_keeps_nobody_out() -> None:
    """Clients open sessions while a hundred silent connections come and are closed at once."""
    limits = Limits(connections_before_handshake=8, close_seconds=50)
    runtime = Runtime(auth=StaticTokens({TEST_TOKEN: "alice"}), limits=limits)
    with trio.fail_after(60):
        async with runtime, trio.open_nursery() as nursery:
            listeners = await nursery.start(serve, runtime, "127.0.0.1", 0)
            port = listeners[0].socket.getsockname()[1]
            silent = []
            for n in range(100):
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                await stream.send_all(request() if n % 2 else b"")
                silent.append(stream)
                if n % 10 == 0:
                    stream = await trio.open_tcp_stream("127.0.0.1", port)
                    async with connect(stream, max_bytes=100_000) as transport:
                        peer = Peer(transport, stream, WireRecorder())
                        await peer.hello()
                        await peer.close()
            began = trio.current_time()
            for stream in silent[:-8]:
                while await stream.receive_some():
                    pass
            # Less than waiting for the closing handshake of a single one takes.
            assert trio.current_time() - began < limits.close_seconds
            assert 'reason="connections_before_handshake"} 92' in runtime.exposition()
            for stream in silent:
                await stream.aclose()
            nursery.cancel_scope.cancel()
