"""Peers that write and read WebSocket frames byte by byte, also ones that no library would."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise

import trio

from arcp_trio.front.request import read_head
from arcp_trio.transport import Transport, TransportClosed, accept, connect, memory_streams
from arcp_trio.transport.base import HasPings

TEXT, BINARY, CLOSE, PING, PONG = 0x81, 0x82, 0x88, 0x89, 0x8A

MAX_BYTES = 4 * 1024 * 1024


def request(path: str = "/arcp") -> bytes:
    """Return the request of an opening handshake."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ).encode()


def frame(first: int, payload: bytes = b"", *, masked: bool = True) -> bytes:
    """Return a frame, whose mask of zeros leaves the payload readable."""
    size = len(payload)
    if size < 126:
        length, rest = size, b""
    elif size < 1 << 16:
        length, rest = 126, size.to_bytes(2, "big")
    else:
        length, rest = 127, size.to_bytes(8, "big")
    mask = bytes(4) if masked else b""
    return bytes((first, length | (0x80 if masked else 0))) + rest + mask + payload


def closing(code: int, reason: str = "") -> bytes:
    """Return the payload of a Close."""
    return code.to_bytes(2, "big") + reason.encode()


def chop(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut `data` into pieces, at places that any numbers stand for."""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(edges)]


def read_on(server: Transport) -> None:
    """Have a server's transport read although nobody receives."""
    assert isinstance(server, HasPings)
    server.read_on()


class RawPeer:
    """The client's end of a stream, as bytes and frames."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._data = bytearray()

    async def shake_hands(self, *, along: bytes = b"") -> None:
        """Do the opening handshake, with the bytes `along` in the same write as the request."""
        await self.stream.send_all(request() + along)
        head = await self.read_head()
        assert head.startswith(b"HTTP/1.1 101 ")

    async def read_head(self) -> bytes:
        """Return the response up to its blank line."""
        while b"\r\n\r\n" not in self._data:
            await self._read_more()
        head, _, rest = bytes(self._data).partition(b"\r\n\r\n")
        self._data = bytearray(rest)
        return head

    async def send(self, first: int, payload: bytes = b"") -> None:
        """Send one frame."""
        await self.stream.send_all(frame(first, payload))

    async def receive(self) -> tuple[int, bytes]:
        """Return the first byte and the payload of the next frame."""
        first, length = await self._take(2)
        assert length < 128, "a server does not mask"
        if length >= 126:
            length = int.from_bytes(await self._take(2 if length == 126 else 8), "big")
        return first, await self._take(length)

    async def read_to_end(self) -> bytes:
        """Return the bytes up to the end of the stream, or its reset."""
        try:
            while True:
                await self._read_more()
        except (EOFError, trio.BrokenResourceError):
            return bytes(self._data)

    async def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            await self._read_more()
        taken = bytes(self._data[:size])
        del self._data[:size]
        return taken

    async def _read_more(self) -> None:
        data = await self.stream.receive_some(65536)
        if not data:
            raise EOFError
        self._data += data


@asynccontextmanager
async def answer(
    stream: trio.abc.Stream, *, max_bytes: int, peer: str = "raw"
) -> AsyncGenerator[Transport, None]:
    """Read a client's request as the front does, and open the server's transport."""
    head = await read_head(stream)
    if head is None:
        raise TransportClosed
    assert head.upgrade_key is not None
    async with accept(
        stream, key=head.upgrade_key, received=head.rest, max_bytes=max_bytes, peer=peer
    ) as transport:
        yield transport


@asynccontextmanager
async def open_pair(
    max_bytes: int = MAX_BYTES,
) -> AsyncGenerator[tuple[Transport, Transport], None]:
    """Open a server's transport and its client's, over memory streams."""
    near, far = memory_streams()
    servers: list[Transport] = []
    ready, done = trio.Event(), trio.Event()

    async def hold_open() -> None:
        async with answer(near, max_bytes=max_bytes, peer="client") as server:
            servers.append(server)
            ready.set()
            await done.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold_open)
        async with connect(far, max_bytes=max_bytes) as client:
            await ready.wait()
            yield servers[0], client
        done.set()


@asynccontextmanager
async def open_raw(
    max_bytes: int = MAX_BYTES, *, along: bytes = b""
) -> AsyncGenerator[tuple[Transport, RawPeer], None]:
    """Open a server's transport to a raw peer, over memory streams."""
    near, far = memory_streams()
    peer = RawPeer(far)
    shaken = trio.Event()

    async def shake_hands() -> None:
        await peer.shake_hands(along=along)
        shaken.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(shake_hands)
        async with answer(near, max_bytes=max_bytes) as server:
            await shaken.wait()
            yield server, peer
