"""A runtime that only echoes, and ways to connect to the front of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import h11
import trio
from attrs import frozen

from arcp_trio import Limits, Runtime, StaticTokens
from arcp_trio.front.door import Caller, Door
from arcp_trio.front.origins import Origins
from arcp_trio.front.serve import serve
from arcp_trio.front.waiting import WaitingRoom
from arcp_trio.transport import MessageTooBig, Transport, connect, memory_streams
from arcp_trio.transport.close_codes import CloseCode

ECHO_LIMITS = Limits(frame_bytes_in=1000, first_frame_bytes=1000)


class EchoRuntime(Runtime):
    """A runtime whose connections send back each message, and which need not be entered.

    A connection ends on the message `bye` and fails on `bug`; `hello` opens its session.
    """

    def __init__(self, nursery: trio.Nursery, limits: Limits = ECHO_LIMITS) -> None:
        super().__init__(auth=StaticTokens({}), limits=limits)
        self.nursery = nursery
        self.attached = 0
        self.deadlines: list[float] = []
        self.private: list[bool] = []
        self.failures: list[BaseException] = []
        self.names: list[str] = []
        self.turned_away: list[str] = []
        self.trouble: str | None = None
        self.figures = "echoes 1\n"
        self.ended = trio.Event()

    @property
    def entered(self) -> bool:
        """Say that connections may come."""
        return True

    async def over(self) -> None:
        """Wait until a test sets `ended`."""
        await self.ended.wait()

    def start_connection(self, serve: Callable[[], Awaitable[None]], name: str) -> None:
        """Run `serve` as a task of `nursery`, and keep the exception that it raises."""
        self.names.append(name)
        self.nursery.start_soon(self._keep_failure, serve, name=name)

    async def _keep_failure(self, serve: Callable[[], Awaitable[None]]) -> None:
        try:
            await serve()
        except Exception as error:  # noqa: BLE001 - the real runtime has a fence here, too
            self.failures.append(error)

    def ready(self) -> str | None:
        """Return `trouble`, as a test has set it."""
        return self.trouble

    def exposition(self) -> str:
        """Return `figures`, as a test has set them."""
        return self.figures

    def connection_failed(self, reason: str) -> None:
        """Record the reason in `turned_away`."""
        self.turned_away.append(reason)

    async def attend(
        self, transport: Transport, *, deadline: float, welcomed: Callable[[], None] | None = None
    ) -> None:
        """Echo the messages of one connection until it ends."""
        self.deadlines.append(deadline)
        self.private.append(transport.private)
        self.attached += 1
        try:
            while (message := await transport.receive()) != "bye":
                if message == "hello" and welcomed is not None:
                    welcomed()
                if message == "bug":
                    raise RuntimeError("a bug")
                await transport.send([message.encode() if isinstance(message, str) else b"bytes"])
            await _say_farewell(transport)
        except MessageTooBig:
            await _say_farewell(transport)
        finally:
            self.attached -= 1


async def _say_farewell(transport: Transport) -> None:
    with trio.move_on_after(2):
        await transport.close(CloseCode.NORMAL)


@asynccontextmanager
async def serving(**options: Any) -> AsyncGenerator[tuple[EchoRuntime, int], None]:
    """Serve an `EchoRuntime` on a free port with these options of `serve`; the block has both."""
    with trio.fail_after(60):
        async with trio.open_nursery() as connections:
            runtime = EchoRuntime(connections)
            async with trio.open_nursery() as nursery:
                listen = partial(serve, runtime, **{"port": 0, **options})
                listeners = await nursery.start(listen)
                yield runtime, listeners[0].socket.getsockname()[1]
                nursery.cancel_scope.cancel()
            connections.cancel_scope.cancel()


@asynccontextmanager
async def client_of(port: int) -> AsyncGenerator[Transport, None]:
    """Connect a client to the server on `port`."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with connect(stream, max_bytes=1000) as transport:
        yield transport


async def assert_echoes(client: Transport, text: str) -> None:
    """Assert that the server sends `text` back."""
    await client.send([text.encode()])
    assert await client.receive() == text


def knock(
    runtime: EchoRuntime,
    *,
    room: WaitingRoom | None = None,
    loopback: bool = False,
    peer: str = "peer",
    **door: Any,
) -> trio.abc.Stream:
    """Connect through a door with these attributes, and return the client's end of the stream."""
    near, far = memory_streams()
    origins = Origins(door.pop("origins", ()))
    opened = Door(runtime=runtime, room=room or WaitingRoom(512), origins=origins, **door)
    caller = Caller(peer=peer, private=False, loopback=loopback)
    runtime.start_connection(partial(opened.receive, near, caller), "peer")
    return far


@frozen
class Answer:
    """An HTTP response, up to the end of the stream."""

    status: int
    headers: dict[str, str]
    body: str


async def read_answer(stream: trio.abc.Stream, method: str = "GET") -> Answer:
    """Read one response with h11, a client that follows every rule of HTTP/1.1."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    client.send(h11.EndOfMessage())
    response, body = None, b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            client.receive_data(bytes(await stream.receive_some(65536)))
        elif isinstance(event, h11.Data):
            body += event.data
        else:
            response = event
    assert isinstance(response, h11.Response)
    headers = {name.decode(): value.decode() for name, value in response.headers}
    return Answer(response.status_code, headers, body.decode())
