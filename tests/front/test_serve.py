"""The accept loop, and what becomes of a connection, with a runtime that only echoes."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import struct
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Runtime, StaticTokens
from arcp_trio.addresses import is_loopback
from arcp_trio.front.door import Caller, Door
from arcp_trio.front.listening import CannotListen, listen
from arcp_trio.front.serve import COMPLAINT_SECONDS, serve, serve_stream
from arcp_trio.transport import TransportClosed, connect, memory_streams
from tests.front.echo import EchoRuntime, assert_echoes, client_of, serving
from tests.transport.peers import CLOSE, PING, TEXT, RawPeer, closing, frame, request

ACCEPT_FAILED = r"^ws://127\.0\.0\.[12]:\d+/arcp: no longer accepts connections: "
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST


# What the nth peer sends, piece by piece, before it goes.
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
    """200 times the same misdeed, ended by a reset or a close, while a good connection echoes."""
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
    """Connect, send `pieces` one by one and go, by a reset or a close, having read or not."""
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
    """A hundred clients ping in the instant the server closes them, and all see a clean close."""
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
    """It reaches the runtime's fence as it was raised, and the client's socket is closed."""
    async with serving() as (runtime, port), client_of(port) as good, client_of(port) as unlucky:
        await unlucky.send([b"bug"])
        with pytest.raises(TransportClosed):
            await unlucky.receive()
        await assert_echoes(good, "alive")
        (failure,) = runtime.failures
        assert isinstance(failure, RuntimeError)


@pytest.mark.real_tcp
async def test_cancelling_serve_leaves_connections_alone() -> None:
    """The port is closed; who is connected stays so."""
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
    """So that logs and task trees say who is who."""
    async with serving() as (runtime, port), client_of(port) as client:
        await assert_echoes(client, "hello")
        (name,) = runtime.names
        assert name.startswith("connection from 127.0.0.1:")


@pytest.mark.real_tcp
async def test_the_kernel_looks_after_idle_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that vanished without a word does not keep its connection for ever."""
    accepted: list[int] = []
    receive = Door.receive

    async def look(door: Door, stream: trio.SocketStream, caller: Caller) -> None:
        accepted.append(stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        await receive(door, stream, caller)

    monkeypatch.setattr(Door, "receive", look)
    async with serving() as (_runtime, port), client_of(port) as client:
        await assert_echoes(client, "hello")
    assert accepted == [1]


@pytest.mark.real_tcp
async def test_running_out_of_file_descriptors_is_survived(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Accepting goes on once there are some again, and says in between why it does not."""
    warned = trio.Event()

    class Watch(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            assert "cannot accept" in record.getMessage()
            warned.set()

    watch = Watch()
    logging.getLogger("arcp_trio.front.serve").addHandler(watch)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        async with serving() as (_runtime, port):
            with socket.socket() as sock:
                free = os.dup(0)
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
                sock.connect(("127.0.0.1", port))  # as far as the backlog
                await warned.wait()
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                sock.sendall(request())
                sock.settimeout(0)
                await trio.lowlevel.wait_readable(sock)
                assert sock.recv(100).startswith(b"HTTP/1.1 101 ")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        logging.getLogger("arcp_trio.front.serve").removeHandler(watch)


@pytest.mark.real_tcp
async def test_a_lasting_lack_of_file_descriptors_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """It is tried ten times a second, and told once in ten."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as (_runtime, port):
        with socket.socket() as sock:
            free = os.dup(0)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                sock.connect(("127.0.0.1", port))
                await trio.sleep(2.5 * COMPLAINT_SECONDS)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    told = [r for r in caplog.records if r.getMessage() == "cannot accept connections"]
    assert len(told) == 3


@pytest.mark.real_tcp
@pytest.mark.parametrize(
    "number",
    [
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
        *(errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EPERM),
    ],
    ids=errno.errorcode.get,
)
async def test_errors_of_accept_that_pass_are_survived(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lack of memory or descriptors, and the error of one connection, end no listener."""
    failures = [OSError(number, os.strerror(number))] * 2
    with fails_to_accept(failures, monkeypatch):
        async with serving() as (_runtime, port), client_of(port) as client:
            await assert_echoes(client, "after all")
            assert failures == []


@pytest.mark.real_tcp
@pytest.mark.parametrize(
    "number", [errno.EBADF, errno.ENOTSOCK, errno.EINVAL, errno.EFAULT], ids=errno.errorcode.get
)
async def test_an_error_of_accept_that_lasts_ends_serve(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`serve` raises it with the address that failed, and closes its other listeners."""
    opened: list[trio.SocketListener] = []
    hosts = ["127.0.0.1", "127.0.0.2"]
    failures = [OSError(number, os.strerror(number))]
    with trio.fail_after(10), fails_to_accept(failures, monkeypatch):
        async with trio.open_nursery() as nursery:

            async def fail(task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
                with pytest.raises(CannotListen, match=ACCEPT_FAILED) as raised:
                    await serve(EchoRuntime(nursery), hosts, 0, task_status=task_status)
                assert raised.value.errno in (number, errno.EBADF)
                assert [listener.socket.fileno() for listener in opened] == [-1, -1]

            opened += await nursery.start(fail)


@pytest.mark.real_tcp
@pytest.mark.parametrize("how", ["shut down", "closed"])
async def test_a_listener_that_is_taken_away_ends_serve(how: str) -> None:
    """A socket that listens no longer is an error, not something to wait for."""
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:

            async def fail(task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
                with pytest.raises(CannotListen, match=ACCEPT_FAILED):
                    await serve(EchoRuntime(nursery), "127.0.0.1", 0, task_status=task_status)

            (listener,) = await nursery.start(fail)
            await wait_all_tasks_blocked()
            if how == "closed":
                await listener.aclose()
            else:
                listener.socket.shutdown(socket.SHUT_RDWR)


@contextmanager
def fails_to_accept(failures: list[OSError], monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Have the next calls of the system's accept raise these errors, one each."""
    with trio.socket.socket() as example:
        kind = type(example)
    really_accept = kind.accept

    async def accept(sock: trio.socket.SocketType) -> object:
        if failures:
            raise failures.pop()
        return await really_accept(sock)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "accept", accept)
        yield


@pytest.mark.real_tcp
async def test_it_ends_with_its_runtime() -> None:
    """Once the runtime is over nobody is let in any more, also where the listener outlives it."""
    runtime = Runtime(auth=StaticTokens({}))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery, runtime:
            listeners = await nursery.start(serve, runtime, "127.0.0.1", 0)
            address = listeners[0].socket.getsockname()
            await (await trio.open_tcp_stream(*address)).aclose()
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream(*address)


@pytest.mark.real_tcp
async def test_who_cannot_be_served_is_not_left_hanging() -> None:
    """A runtime that takes no connection ends the listener; the one that was accepted is closed."""
    with trio.fail_after(60):
        async with trio.open_nursery() as closed:
            runtime = EchoRuntime(closed)
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(refused_by_the_runtime, runtime)
            address = listeners[0].socket.getsockname()
            async with await trio.open_tcp_stream(*address) as stream:
                assert await stream.receive_some() == b""
        with pytest.raises(OSError, match="connect"):
            await trio.open_tcp_stream(*address)


async def refused_by_the_runtime(  # noqa: ASYNC128 - passes it on
    runtime: EchoRuntime, *, task_status: trio.TaskStatus[list[trio.SocketListener]]
) -> None:
    """Serve, and expect the runtime to take nobody."""
    with pytest.raises(RuntimeError, match="closed to new arrivals"):
        await serve(runtime, "127.0.0.1", 0, task_status=task_status)


class TwoAddresses(trio.abc.HostnameResolver):
    """A name for two places; on the second, somebody else takes the first port that is tried."""

    def __init__(self, second: str = "127.0.0.2") -> None:
        self.rival: socket.socket | None = None
        self._second = second

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002 - as Trio has it
        proto: int = 0,
        flags: int = 0,
    ) -> list[Any]:
        """Whatever is asked for is at two places, of the loopback interface unless told."""
        assert isinstance(port, int)
        if port and self.rival is None:
            self.rival = socket.create_server(("127.0.0.2", port))
        places = [("127.0.0.1", port), (self._second, port)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", place) for place in places]

    async def getnameinfo(
        self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int
    ) -> tuple[str, str]:
        """Nobody asks."""
        raise NotImplementedError


@pytest.mark.real_tcp
async def test_a_free_port_is_the_same_on_every_address() -> None:
    """A name with several addresses, as localhost, has one port: clients may try any of them."""
    resolver = TwoAddresses()
    trio.socket.set_custom_hostname_resolver(resolver)
    with trio.fail_after(60):
        listeners = await listen(["localhost"], 0)
        one, other = [listener.socket.getsockname() for listener in listeners]
        assert (one[0], other[0]) == ("127.0.0.1", "127.0.0.2")
        assert one[1] == other[1] != 0
        for listener in listeners:
            await listener.aclose()
    assert resolver.rival is not None
    with resolver.rival as rival:
        assert rival.getsockname()[1] != one[1]


@pytest.mark.real_tcp
async def test_an_address_that_this_machine_does_not_have_is_passed_over() -> None:
    """If there is another one behind the name; localhost may be ::1 where there is no IPv6."""
    trio.socket.set_custom_hostname_resolver(TwoAddresses("192.0.2.1"))
    (listener,) = await listen(["localhost"], 0)
    assert listener.socket.getsockname()[0] == "127.0.0.1"
    await listener.aclose()
    with pytest.raises(CannotListen, match=r"192\.0\.2\.1: "):
        await listen(["192.0.2.1"], 0)


@pytest.mark.parametrize("sent", [b"", b"GET /arcp HTTP/1.1\r\n"])
async def test_a_connection_that_says_nothing_is_closed_in_time(
    sent: bytes, autojump_clock: MockClock
) -> None:
    """The opening handshake has to be done within the bound that counts from the TCP accept."""
    near, far = memory_streams()
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        await far.send_all(sent)
        runtime.start_connection(lambda: serve_stream(runtime, near, "mute"), "mute")
        assert await far.receive_some() == b""
    assert trio.current_time() == 10
    assert runtime.failures == []


async def test_the_deadline_goes_on_to_the_runtime(autojump_clock: MockClock) -> None:
    """A client that is late with its request has that much less for its introduction, no more."""
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
    """A peer that is told 1009 and does not go is closed."""
    near, far = memory_streams()
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        runtime.start_connection(lambda: serve_stream(runtime, near, "big"), "big")
        peer = RawPeer(far)
        await peer.shake_hands()
        await peer.send(TEXT, bytes(1001))
        assert (await peer.read_to_end())[2:4] == closing(1009)
    assert runtime.attached == 0


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("192.0.2.1", False),
        ("::ffff:192.0.2.1", False),
        ("fe80::1%eth0", False),
        ("::", False),
    ],
)
def test_a_peer_on_this_machine_is_known_by_its_address(host: str, *, here: bool) -> None:
    """Only loopback, also written as an IPv6 address, leaves nothing to read along."""
    assert is_loopback(host) is here


async def test_the_runtime_learns_whether_somebody_may_read_along(
    autojump_clock: MockClock,
) -> None:
    """A transport says of itself what it was opened with."""
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
