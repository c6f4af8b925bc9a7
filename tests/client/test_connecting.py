"""Connecting over real sockets works, or the error says in one sentence why it does not."""

from __future__ import annotations

import re
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from trio.testing import MockClock

from arcp_trio import (
    CommandFailed,
    ConnectionFailed,
    ConnectionLost,
    ConnectionRefused,
    ConnectTimedOut,
    NotWebSocket,
    ProtocolError,
    TlsFailed,
    Unauthenticated,
    WrongPath,
    connect,
    serve,
)
from arcp_trio.client.dialing import Target
from arcp_trio.front.serve import serve_stream
from arcp_trio.wire.features import ALL_FEATURES
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted
from tests.ports import refusing_port

real = pytest.mark.real_tcp

Handler = Callable[[trio.abc.Stream], Awaitable[None]]


@asynccontextmanager
async def listening(handler: Handler) -> AsyncGenerator[int, None]:
    """Serve each connection with the handler during the block, which gets the port."""
    async with trio.open_nursery() as nursery:
        serving = partial(trio.serve_tcp, handler, 0, host="127.0.0.1")
        (listener,) = await nursery.start(serving)
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


async def refusal(target: Target, context: ssl.SSLContext | None = None) -> ConnectionFailed:
    """Return what connecting raises, and check that its text is one line."""
    with pytest.raises(ConnectionFailed) as failed, trio.fail_after(10):
        async with connect(target, token=TOKEN, ssl_context=context):
            pytest.fail("it connected")
    words = str(failed.value)
    assert words
    assert "\n" not in words
    return failed.value


@real
async def test_by_url() -> None:
    """A URL may have a path or not, and a name or an address."""
    with trio.fail_after(20):
        async with real_runtime() as runtime, trio.open_nursery() as nursery:
            serving = partial(serve, runtime, port=0)
            (listener,) = await nursery.start(serving)
            port = listener.socket.getsockname()[1]
            for url in (
                "ws://127.0.0.1:{}/arcp?from=here",
                "ws://127.0.0.1:{}",
                "WS://localhost:{}",
            ):
                async with connect(url.format(port), token=TOKEN) as client:
                    assert await (await client.submit("echo", url)).result() == url
            missing = await refusal(f"ws://127.0.0.1:{port}/elsewhere")
            assert type(missing) is WrongPath
            assert "/elsewhere" in str(missing)
            with pytest.raises(Unauthenticated):
                async with connect(f"ws://127.0.0.1:{port}", token="wrong"):
                    pytest.fail("it connected")
            nursery.cancel_scope.cancel()


@real
async def test_by_the_path_of_a_socket(tmp_path: Path) -> None:
    """`unix:` and a path connect to a Unix socket, or raise ConnectionRefused."""
    path = tmp_path / "arcp.sock"
    missing = await refusal(f"unix:{path}")
    assert type(missing) is ConnectionRefused
    socket = trio.socket.socket(trio.socket.AF_UNIX)
    await socket.bind(str(path))
    socket.listen()
    with trio.fail_after(20):
        async with real_runtime() as runtime, trio.open_nursery() as nursery:
            handler = partial(serve_stream, runtime, peer="unix", private=True)
            serving = partial(trio.serve_listeners, handler, [trio.SocketListener(socket)])
            nursery.start_soon(serving)
            async with connect(f"unix:{path}", token=TOKEN) as client:
                assert await (await client.submit("echo", 7)).result() == 7
            nursery.cancel_scope.cancel()


@real
async def test_several_addresses() -> None:
    """Of several addresses the first one that answers is used; a refusal counts for all."""
    with trio.fail_after(20), refusing_port() as dead, refusing_port() as also_dead:
        nowhere = [f"ws://127.0.0.1:{port}" for port in (dead, also_dead)]
        async with real_runtime() as runtime, trio.open_nursery() as nursery:
            serving = partial(serve, runtime, port=0)
            (listener,) = await nursery.start(serving)
            there = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"
            for target in ([nowhere[0], there], (there, *nowhere), ", ".join([*nowhere, there])):
                async with connect(target, token=TOKEN) as client:
                    assert await (await client.submit("echo", 7)).result() == 7
            with pytest.raises(Unauthenticated):
                async with connect([there, nowhere[0]], token="wrong"):
                    pytest.fail("it connected")
            nursery.cancel_scope.cancel()
        missing = await refusal(nowhere)
        assert type(missing) is ConnectionRefused
        assert f"port {dead}: connection refused; no connection" in str(missing)
        assert f"port {also_dead}: connection refused" in str(missing)


@real
async def test_no_server() -> None:
    """A closed port and an unknown host raise ConnectionRefused."""
    with refusing_port() as port:
        refused = await refusal(f"ws://127.0.0.1:{port}/arcp")
    assert type(refused) is ConnectionRefused
    assert str(port) in str(refused)
    assert type(await refusal("ws://no-such-host.invalid/arcp")) is ConnectionRefused
    assert type(await refusal("ws://no..host/arcp")) is ConnectionRefused


@real
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", "HTTP status 200"),
        (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", "HTTP status 502"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "does not speak WebSocket"),
        (b"\0", "does not speak WebSocket"),
    ],
)
async def test_something_else_there(answer: bytes, words: str) -> None:
    """A server that answers something else than a WebSocket raises NotWebSocket."""

    async def handler(stream: trio.abc.Stream) -> None:
        async with stream:
            await stream.receive_some(65536)
            await stream.send_all(answer)

    async with listening(handler) as port:
        failed = await refusal(f"ws://127.0.0.1:{port}/arcp")
    assert type(failed) is NotWebSocket
    assert words in str(failed)


@real
@pytest.mark.parametrize("reads", [True, False])
async def test_a_server_that_dies_at_once(*, reads: bool) -> None:
    """A server that says nothing at all has closed the connection, and the next one is tried."""

    async def handler(stream: trio.abc.Stream) -> None:
        async with stream:
            if reads:
                await stream.receive_some(65536)  # the end of the connection is a reset otherwise

    async with listening(handler) as port:
        dead = f"ws://127.0.0.1:{port}"
        failed = await refusal(dead)
        assert type(failed) is ConnectionLost
        assert str(failed).startswith(f"127.0.0.1:{port} closed the connection before it answered")
        async with real_runtime() as runtime, trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(serve, runtime, port=0))
            there = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"
            async with connect([dead, there], token=TOKEN) as client:
                assert await (await client.submit("echo", 7)).result() == 7
            nursery.cancel_scope.cancel()


@real
async def test_tls() -> None:
    """TLS needs a trusted certificate for the host, and a server with TLS."""
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def plain(stream: trio.abc.Stream) -> None:
        async with stream:
            await stream.receive_some(65536)
            await stream.send_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with trio.fail_after(20):
        async with real_runtime() as runtime:

            async def secure(stream: trio.abc.Stream) -> None:
                inner = trio.SSLStream(stream, server, server_side=True, https_compatible=True)
                await serve_stream(runtime, inner, "client", private=True)

            async with listening(secure) as port:
                url = f"wss://localhost:{port}/arcp"
                async with connect(url, token=TOKEN, ssl_context=trusting) as client:
                    assert await (await client.submit("echo", "é")).result() == "é"
                untrusted = await refusal(url)
                assert type(untrusted) is TlsFailed
                assert "certificate" in str(untrusted)
                elsewhere = await refusal(f"wss://127.0.0.1:{port}/arcp", trusting)
                assert type(elsewhere) is TlsFailed
                assert "ws://" not in str(untrusted)
                in_the_open = await refusal(f"ws://localhost:{port}/arcp")
                assert type(in_the_open) is ConnectionLost
                assert str(in_the_open).endswith("before it answered; perhaps by wss://")
        async with listening(plain) as port:
            without = await refusal(f"wss://localhost:{port}/arcp", trusting)
            assert type(without) is TlsFailed
            assert str(without).endswith("; perhaps by ws://")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("http://localhost", "for http:// write ws://"),
        ("https://localhost/arcp", "for https:// write wss://"),
        ("localhost:7777", "neither ws:// nor wss://"),
        ("", "'': it is empty: expected ws:// or wss:// and a host, or unix: and a path"),
        (["ws://localhost", ""], "'': it is empty"),
        (["", "ws://localhost"], "'': it is empty"),
        ("ws://a:1,,ws://b", "'ws://a:1,,ws://b': a comma has no address before or after it"),
        ("ws://a:1,", "'ws://a:1,': a comma has no address before or after it"),
        (",ws://a:1", "',ws://a:1': a comma has no address before or after it"),
        ("ws://", "no host"),
        ("ws://:7777/arcp", "no host"),
        ("ws://localhost:port", "a port is a number from 1 to 65535"),
        ("ws://localhost:70000", "a port is a number"),
        ("ws://localhost:0", "a port is a number"),
        ("ws://localhost/a b", "for ' ' in its path write %20"),
        ("ws://localhost/?é", "for 'é' in its path write %C3%A9"),
        ("ws://[::1/arcp", "IPv6"),
        ("unix:", "expected unix: and a path"),
        ("unix:/a\0b", "expected unix: and a path"),
        ([], "the list is empty: expected addresses, or a command with its arguments"),
        (["ws://localhost", "localhost:7777"], "'localhost:7777': it begins with neither"),
        ("ws://localhost,http://localhost", "for http:// write ws://"),
    ],
)
async def test_what_is_no_target(target: Target, words: str) -> None:
    """A string or command that is not a target raises ValueError, which says what is wrong."""
    with pytest.raises(ValueError, match=re.escape(words)):
        async with connect(target):
            pytest.fail("it connected")


@pytest.mark.parametrize("target", [None, 7777, b"ws://localhost", {"url": "ws://localhost"}])
async def test_what_is_not_even_a_kind_of_target(target: Any) -> None:
    """A value of another type raises TypeError, which says what may be given."""
    with pytest.raises(TypeError, match=r"expected a ws:// or wss:// URL, unix: .*, not "):
        async with connect(target):
            pytest.fail("it connected")


async def test_a_runtime_that_says_nothing(autojump_clock: MockClock) -> None:
    """Connecting times out, whether the silence comes before or after the WebSocket is open."""

    async def silent(wire: Wire) -> None:
        await wire.receive("nothing, ever")

    async with scripted(silent) as runtime:
        assert type(await timed(runtime.open)) is ConnectTimedOut

    async def never() -> trio.abc.Stream:
        await trio.sleep_forever()
        raise AssertionError

    assert type(await timed(never)) is ConnectTimedOut


async def timed(target: Target) -> ConnectionFailed:
    """Return what connecting raises within ten seconds."""
    with pytest.raises(ConnectionFailed) as failed, trio.fail_after(11):
        async with connect(target, token=TOKEN):
            pytest.fail("it connected")
    return failed.value


async def test_answers_that_are_no_welcome(autojump_clock: MockClock) -> None:
    """Other answers to the hello than a welcome raise an error that names them."""

    async def no_json(wire: Wire) -> None:
        await wire.receive()
        await wire.transport.send([b"hello yourself"])
        await wire.receive()

    async def something_else(wire: Wire) -> None:
        await wire.receive()
        await wire.send("session.jobs", {"jobs": []})
        await wire.receive()

    async def to_nothing(wire: Wire) -> None:
        await wire.receive()
        await wire.send("session.welcome", {"session_id": 7}, session_id=None)
        await wire.receive()

    async def hangs_up(wire: Wire) -> None:
        await wire.receive()
        await wire.transport.close(1013, "too busy")

    for script, kind, words in (
        (no_json, ProtocolError, "does not speak ARCP"),
        (something_else, ProtocolError, "session.jobs"),
        (to_nothing, ProtocolError, "names no session"),
        (hangs_up, ConnectionLost, "too busy"),
    ):
        async with scripted(script) as runtime:
            failed = await refusal(runtime.open)
        assert type(failed) is kind
        assert words in str(failed)


async def test_a_welcome_with_next_to_nothing(autojump_clock: MockClock) -> None:
    """A welcome needs only a session id; agents come as names or as objects."""

    async def bare(wire: Wire) -> None:
        await wire.receive()
        agents = ["a", {"name": "b", "versions": ["1", 2], "default": None}, {"no": "name"}, 5]
        capabilities = {"agents": agents, "features": None}
        await wire.send("session.welcome", {"capabilities": capabilities})
        await wire.accept("job_1")
        await wire.result(1, "job_1", "fine")
        await wire.end()

    async with scripted(bare) as runtime, connect(runtime.open) as client:
        assert [(agent.name, agent.versions, agent.default) for agent in client.agents] == [
            ("a", None, None),
            ("b", ["1"], None),
        ]
        assert client.features == frozenset()
        assert await (await client.submit("echo")).result() == "fine"
        assert "auth" not in runtime.wires[0].seen[0]["payload"]


@pytest.mark.spec("6.2-1")
async def test_the_hello(autojump_clock: MockClock) -> None:
    """The first hello has the client, its token and all features, and asks for no resume."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        hello = runtime.wires[0].hello
        assert client.session_id == runtime.wires[0].session_id
    assert hello.keys() == {"arcp", "id", "type", "payload"}
    payload = hello["payload"]
    assert payload["client"]["name"] == "arcp_trio"
    assert payload["auth"] == {"scheme": "bearer", "token": TOKEN}
    assert payload["capabilities"]["features"] == [
        *ALL_FEATURES,
        "x-vendor.arcp-trio.stop",
        "x-vendor.arcp-trio.questions",
        "x-vendor.arcp-trio.tokens",
    ]
    assert payload.keys() == {"client", "auth", "capabilities"}


async def test_garbage_in_a_session(autojump_clock: MockClock) -> None:
    """A malformed frame ends the connection; a runtime that repeats it loses the session."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.transport.send([b'{"arcp":'])
        await wire.receive("nothing, ever")

    async with scripted(script) as runtime:
        with pytest.raises(ProtocolError, match="not ARCP"):
            async with connect(runtime.open, token=TOKEN):
                await trio.sleep_forever()
        assert len(runtime.wires) == 3


async def test_a_stream_of_ones_own(autojump_clock: MockClock) -> None:
    """An open stream is a target for one connection."""
    async with real_runtime() as runtime:
        stream = await Network(runtime).open()
        async with connect(stream, token=TOKEN) as client:
            assert await (await client.submit("echo", 1)).result() == 1


@real
async def test_a_command() -> None:
    """A command that cannot be started, ends or is not a runtime raises what it is."""
    assert type(await refusal(["/no/such/program"])) is CommandFailed
    ended = await refusal([sys.executable, "-c", "pass"])
    assert type(ended) is ConnectionLost
    assert "standard output" in str(ended)
    other = await refusal([sys.executable, "-c", "input(); print('what?'); input()"])
    assert type(other) is ProtocolError
