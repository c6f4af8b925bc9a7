"""A runtime that only echoes, and ways to knock at the door in front of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import h11
import trio
from attrs import define, field, frozen

from arcp_trio.front import serve
from arcp_trio.front.door import Caller, Door
from arcp_trio.front.origins import Origins
from arcp_trio.front.waiting import WaitingRoom
from arcp_trio.transport import MessageTooBig, Transport, connect, memory_streams


@frozen(kw_only=True)
class EchoLimits:
    """The bounds of an `EchoRuntime`."""

    handshake_seconds: float = 10.0
    frame_bytes_in: int = 1000
    first_frame_bytes: int = 1000
    connections_before_handshake: int = 512


@define(eq=False)
class EchoRuntime:
    """Sends back what it gets; ends a connection that says `bye`, fails on one that says `bug`."""

    nursery: trio.Nursery
    limits: EchoLimits = EchoLimits()
    attached: int = 0
    deadlines: list[float] = field(factory=list)
    private: list[bool] = field(factory=list)
    failures: list[BaseException] = field(factory=list)
    names: list[str] = field(factory=list)
    turned_away: list[str] = field(factory=list)
    trouble: str | None = None
    figures: str = "echoes 1\n"
    ended: trio.Event = field(factory=trio.Event)

    async def over(self) -> None:
        """Wait until a test ends it."""
        await self.ended.wait()

    def start_connection(self, serve: Callable[[], Awaitable[None]], name: str) -> None:
        """Run `serve` behind a fence."""
        self.names.append(name)
        self.nursery.start_soon(self._fence, serve, name=name)

    async def _fence(self, serve: Callable[[], Awaitable[None]]) -> None:
        try:
            await serve()
        except Exception as exc:  # noqa: BLE001 - the fence
            self.failures.append(exc)

    def ready(self) -> str | None:
        """What a test has set."""
        return self.trouble

    def exposition(self) -> str:
        """One figure."""
        return self.figures

    def connection_failed(self, reason: str) -> None:
        """Note why."""
        self.turned_away.append(reason)

    async def attend(
        self, transport: Transport, *, deadline: float, welcomed: Callable[[], None] | None = None
    ) -> None:
        """Echo until the end; `hello` is what makes a session."""
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
        await transport.close(1000)


@asynccontextmanager
async def serving(**options: Any) -> AsyncGenerator[tuple[EchoRuntime, int], None]:
    """Serve an echo on a free port, with these options of `serve`."""
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
    """Connect as a client of ours."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with connect(stream, max_bytes=1000) as transport:
        yield transport


async def assert_echoes(client: Transport, text: str) -> None:
    """Hold that a connection is served."""
    await client.send([text.encode()])
    assert await client.receive() == text


def knock(
    runtime: EchoRuntime, *, room: WaitingRoom | None = None, loopback: bool = False, **door: Any
) -> trio.abc.Stream:
    """Come in by a door with these properties; returns the client's end."""
    near, far = memory_streams()
    origins = Origins(door.pop("origins", ()))
    opened = Door(runtime=runtime, room=room or WaitingRoom(512), origins=origins, **door)
    caller = Caller(peer="peer", private=False, loopback=loopback)
    runtime.start_connection(partial(opened.receive, near, caller), "peer")
    return far


@frozen
class Answer:
    """A response, up to the end of the stream."""

    status: int
    headers: dict[str, str]
    body: str


async def read_answer(stream: trio.abc.Stream, method: str = "GET") -> Answer:
    """Read a response as a client that minds every rule does, and then the end."""
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
