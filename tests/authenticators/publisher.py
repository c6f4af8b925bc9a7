"""A server that publishes keys: real HTTP on loopback, well behaved or not."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import attrs
import trio


@attrs.define(eq=False)
class Publisher:
    """What it answers, and how often it was asked."""

    url: str
    body: bytes
    status: str = "200 OK"
    headers: str = ""
    gate: trio.Event | None = None
    """Nothing is answered before this."""
    stall: bool = False
    """The answer ends after its first half, and the connection stays open."""
    cut: bool = False
    """The same, and the connection ends."""
    tls: ssl.SSLContext | None = None
    asked: int = 0
    arrived: trio.Event = attrs.field(factory=trio.Event)
    """Set by the next request."""

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer one request, if the other side trusts us."""
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
            await trio.sleep_forever()


@asynccontextmanager
async def publishing(
    body: bytes, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Publisher, None]:
    """Publish on a port of its own; with `tls` as localhost, over that."""
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listener.socket.getsockname()[1]
            where = "http://127.0.0.1" if tls is None else "https://localhost"
            publisher = Publisher(f"{where}:{port}/keys.json", body, tls=tls)
            await nursery.start(trio.serve_listeners, publisher.serve, [listener])
            yield publisher
            nursery.cancel_scope.cancel(reason="the test is over")
