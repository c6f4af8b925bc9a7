"""A server that publishes keys over real HTTP on the loopback interface, well or badly."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import attrs
import trio


@attrs.define(eq=False)
class Publisher:
    """The server: its answer, and how often it was asked."""

    url: str
    body: bytes
    status: str = "200 OK"
    headers: str = ""
    gate: trio.Event | None = None
    """If set, no answer is sent before this event."""
    stall: bool = False
    """Whether the answer stops after its first half, and the connection stays open."""
    cut: bool = False
    """Whether the answer stops after its first half, and the connection closes."""
    tls: ssl.SSLContext | None = None
    asked: int = 0
    arrived: trio.Event = attrs.field(factory=trio.Event)
    """Set by the next request."""
    stalled: trio.Event = attrs.field(factory=trio.Event)
    """Set by the next answer that stops."""

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer one request, if the client accepts the certificate."""
        if self.tls is not None:
            stream = trio.SSLStream(stream, self.tls, server_side=True, https_compatible=True)
        async with stream:
            with suppress(trio.BrokenResourceError):
                await self._answer(stream)

    async def _answer(self, stream: trio.abc.Stream) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            received += await stream.receive_some()
        assert received.startswith(b"GET /keys.json HTTP/1.1\r\nHost: ")
        self.asked += 1
        self.arrived.set()
        if self.gate is not None:
            await self.gate.wait()
        head = f"HTTP/1.1 {self.status}\r\nContent-Length: {len(self.body)}\r\n"
        answer = f"{head}Connection: close\r\n{self.headers}\r\n".encode() + self.body
        if self.stall or self.cut:
            answer = answer[: len(answer) // 2]
        await stream.send_all(answer)
        if self.stall:
            self.stalled.set()
            await trio.sleep_forever()


@asynccontextmanager
async def publishing(
    body: bytes, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Publisher, None]:
    """Serve a key set on a free port; with `tls` over https, as localhost."""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listener.socket.getsockname()[1]
            where = "http://127.0.0.1" if tls is None else "https://localhost"
            publisher = Publisher(f"{where}:{port}/keys.json", body, tls=tls)
            await nursery.start(trio.serve_listeners, publisher.serve, [listener])
            yield publisher
            nursery.cancel_scope.cancel(reason="the test is over")
