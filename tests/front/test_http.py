"""Plain HTTP requests to the front: which answer each gets, and which requests are malformed."""

from __future__ import annotations

import socket

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import Limits, MemoryStore, Runtime, StaticTokens
from arcp_trio.front.request import HEAD_BYTES, BadRequest, read_head
from arcp_trio.front.serve import serve_stream
from arcp_trio.transport import memory_streams
from tests.front.asking import ask, get
from tests.front.echo import EchoRuntime, knock, read_answer, serving
from tests.transport.peers import request

# --- the pages ---


@pytest.mark.parametrize(
    ("target", "status", "body"),
    [
        ("/healthz", 200, "alive\n"),
        ("/healthz?probe=1", 200, "alive\n"),
        ("http://10.0.0.1:7777/healthz", 200, "alive\n"),
        ("HTTPS://[::1]/readyz?", 200, "ready\n"),
        ("/metrics", 200, "echoes 1\n"),
        ("/", 404, None),
        ("/arcp/", 404, None),
        ("/arcpx", 404, None),
        ("/other?/arcp", 404, None),
        ("/HEALTHZ", 404, None),
        ("/%68ealthz", 404, None),
        ("http://localhost", 404, None),
        ("*", 404, None),
        ("/arcp", 426, None),
        ("/arcp?access=1", 426, None),
    ],
)
async def test_each_path_has_its_answer(target: str, status: int, body: str | None) -> None:
    """A page is found by its path alone; other paths get 404, and the WebSocket's 426."""
    answer = await ask(get(target))
    assert answer.status == status
    assert body is None or answer.body == body
    assert answer.headers["connection"] == "close" or status == 426
    assert answer.body.endswith("\n")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_head_is_get_without_the_body(path: str) -> None:
    """HEAD gets the same status and length as GET, without the body."""
    whole, head = await ask(get(path)), await ask(get(path, "HEAD"), method="HEAD")
    assert head.body == ""
    assert (head.status, head.headers["content-length"]) == (200, str(len(whole.body)))


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        ("/healthz", "POST", "GET, HEAD"),
        ("/readyz", "DELETE", "GET, HEAD"),
        ("/metrics", "OPTIONS", "GET, HEAD"),
        ("/arcp", "POST", "GET"),
        ("/arcp", "HEAD", "GET"),
    ],
)
async def test_other_methods_are_not_allowed(path: str, method: str, allowed: str) -> None:
    """Another method than those of a page gets 405, with the methods that are allowed."""
    answer = await ask(get(path, method), method=method)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)


async def test_the_websocket_path_without_an_upgrade_says_what_it_is() -> None:
    """A request for the WebSocket's path without an upgrade gets 426, with the protocol to use."""
    answer = await ask(get("/arcp"))
    assert answer.status == 426
    assert answer.headers["upgrade"] == "websocket"


async def test_metrics_come_in_the_format_of_prometheus() -> None:
    """The content type of the metrics names the version of Prometheus's text format."""
    content_type = (await ask(get("/metrics"))).headers["content-type"]
    assert content_type.startswith("text/plain; version=0.0.4")


async def test_a_runtime_in_trouble_says_why_it_is_not_ready() -> None:
    """A runtime whose store is in trouble answers that it is alive and not ready, and why."""
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        runtime.trouble = "the store cannot be used"
        ready = await ask(get("/readyz"), runtime=runtime)
        assert (ready.status, ready.body) == (503, "the store cannot be used\n")
        assert (await ask(get("/healthz"), runtime=runtime)).status == 200


async def test_a_runtime_is_ready_while_it_takes_work(autojump_clock: MockClock) -> None:
    """A real runtime is ready between its start and its shutdown, and says why not otherwise."""
    runtime = Runtime(auth=StaticTokens({}), store=MemoryStore())
    assert runtime.ready() == "starting"
    async with runtime:
        assert runtime.ready() is None
        near, far = memory_streams()
        runtime.start_connection(lambda: serve_stream(runtime, near, "probe"), "probe")
        await far.send_all(get("/metrics"))
        assert "arcp_build_info" in (await read_answer(far)).body
        await far.aclose()
        await runtime.shutdown()
        assert runtime.ready() == "shutting down"
    assert runtime.ready() == "shutting down"


# --- malformed requests ---


def padded(size: int) -> bytes:
    """Return a request for a page whose head has `size` bytes."""
    bare = len(get("/healthz", more="X: \r\n"))
    return get("/healthz", more=f"X: {'x' * (size - bare)}\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x00\xff\r\n\r\n garbage", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # a TLS ClientHello
        (b"\r\n\r\n", 400),
        (b"GET /healthz\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /healthz HTTP/1.1\r\nHost: a\r\nhOsT: b\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost:\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: evil[::1]\r\n\r\n", 400),
        (b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        (b"GET http:///healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET http://me@a/healthz HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (get("/healthz", more="Origin: http://a\r\nOrigin: http://b\r\n"), 400),
        (get("/healthz", more="No colon\r\n"), 400),
        (get("/healthz", more="Transfer-Encoding: gzip\r\n"), 501),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (padded(HEAD_BYTES), 200),
        (padded(HEAD_BYTES + 1), 431),
        (b"GET /" + b"x" * 100_000, 431),
        (get("/healthz", more="X: and so on\r\n" * 5_000), 431),
    ],
)
async def test_a_malformed_request_gets_its_status(
    data: bytes, status: int, autojump_clock: MockClock
) -> None:
    """A malformed or oversized request is answered at once with its status, and counted."""
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        assert (await ask(data, runtime=runtime)).status == status
        assert runtime.turned_away == ([] if status == 200 else ["request"])
    assert trio.current_time() < 2


@pytest.mark.parametrize("sent", [b"", b"GET", get("/healthz")[:-2], get("/healthz")[:-1]])
async def test_a_slow_head_is_closed_at_the_deadline(
    sent: bytes, autojump_clock: MockClock
) -> None:
    """A connection whose request is incomplete is closed at the deadline, and counted."""
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        stream = knock(runtime)
        for byte in sent:
            await trio.sleep(0.1)
            await stream.send_all(bytes([byte]))
        assert await stream.receive_some() == b""
    assert trio.current_time() == 10
    assert runtime.turned_away == ["handshake_seconds"]


async def test_an_answer_that_nobody_reads_is_given_up(autojump_clock: MockClock) -> None:
    """A client that does not read its answer, or does not close, is not waited for for ever."""
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery, limits=Limits(handshake_seconds=5))
        runtime.figures = "x" * 1_000_000
        stream = knock(runtime)
        await stream.send_all(get("/metrics"))
    assert trio.current_time() == 5
    async with trio.open_nursery() as nursery:
        stream = knock(EchoRuntime(nursery))
        await stream.send_all(get("/healthz"))
        await read_answer(stream)
    assert trio.current_time() == 6


async def test_a_client_may_close_at_any_byte(autojump_clock: MockClock) -> None:
    """A client may close at any byte of its request, and nothing fails."""
    data = request()
    async with trio.open_nursery() as nursery:
        runtime = EchoRuntime(nursery)
        for cut in range(len(data) + 1):
            stream = knock(runtime)
            await stream.send_all(data[:cut])
            await stream.aclose()
    assert runtime.failures == []
    assert trio.current_time() == 0


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_request_or_none(data: bytes, like_http: bool) -> None:  # noqa: FBT001
    """Any bytes are read to a head or to the status of an error."""
    statuses: set[int] = set()

    async def read() -> None:
        near, far = memory_streams()
        await far.send_all((b"GET /arcp HTTP/1.1\r\nHost: " if like_http else b"") + data)
        await far.aclose()
        try:
            await read_head(near)
        except BadRequest as bad:
            statuses.add(bad.status)

    trio.run(read)
    assert statuses <= {400, 431, 501, 505}


# --- over real sockets ---


@pytest.mark.real_tcp
async def test_a_client_that_has_said_all_is_answered() -> None:
    """A client that half-closes after its request, as netcat does, gets its answer."""
    async with serving() as (_runtime, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(get("/healthz"))
        await stream.send_eof()
        assert (await read_answer(stream)).status == 200
        assert await stream.receive_some() == b""
        await stream.aclose()


@pytest.mark.real_tcp
async def test_an_answer_is_not_lost_to_what_was_not_read() -> None:
    """A client that is still sending a body gets its answer."""
    async with serving() as (runtime, port):
        for _ in range(20):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(get("/arcp", "POST", more="Content-Length: 500000\r\n"))
            await stream.send_all(bytes(500_000))
            assert (await read_answer(stream, "POST")).status == 405
            await stream.aclose()
        assert runtime.failures == []


@pytest.mark.real_tcp
async def test_resets_at_any_time_harm_nobody() -> None:
    """Clients that reset their connections during the answer disturb no other client."""
    async with serving() as (runtime, port):
        for n in range(40):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(get("/metrics")[: n * 3])
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(get("/healthz"))
        assert (await read_answer(stream)).status == 200
        await stream.aclose()
        assert runtime.failures == []
