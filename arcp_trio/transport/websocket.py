"""WebSocket transports: how one is opened, on either side, and what it does then."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from hashlib import sha1
from typing import Final

import trio

from arcp_trio.addresses import WEBSOCKET_PATH
from arcp_trio.nurseries import tasks_beside
from arcp_trio.transport.base import (
    GONE,
    HandshakeFailed,
    HasPings,
    SendsAtOnce,
    Transport,
    TransportClosed,
)
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.transport.pace import Pace
from arcp_trio.transport.stream import FrameStream
from arcp_trio.transport.websocket_reader import WebSocketReader

_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Shows that a server knows WebSockets (RFC 6455 §1.3)."""
_SWITCHING: Final = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Accept: {}\r\n\r\n"
)


def accept(
    stream: trio.abc.Stream,
    *,
    key: str,
    received: bytes = b"",
    max_bytes: int,
    first_bytes: int | None = None,
    peer: str,
    private: bool = False,
) -> AbstractAsyncContextManager[Transport]:
    """Answer a client's request for a WebSocket on `stream`; the block gets the transport.

    Leaving the block closes `stream` by force; call `Transport.close` before for a closing
    handshake. An error of the peer shows as `TransportClosed` from the transport and nowhere else;
    what the block raises is not wrapped in a group.

    Args:
        key: the `Sec-WebSocket-Key` of the request, which the caller has read and checked.
        received: what has been read from `stream` after the request.
        max_bytes: the largest message that is received, in bytes.
        first_bytes: the largest first message, if that is less. Little more is read before a
            second message is asked for.
        peer: the address of the peer, for logs.
        private: whether `stream` is known to be encrypted, or to stay within the machine.

    Cancellation: the answer has no timeout, so set one: open a cancel scope around the whole block,
    and lift its deadline inside.

    Raises:
        HandshakeFailed: on entering, when the peer has gone.
    """
    frames = FrameStream(
        stream, client=False, max_bytes=max_bytes, first_bytes=first_bytes, received=received
    )

    async def answer(reader: WebSocketReader) -> None:
        proof = b64encode(sha1((key + _GUID).encode(), usedforsecurity=False).digest()).decode()
        try:
            await frames.outgoing.send_answer(_SWITCHING.format(proof).encode())
        except GONE as error:
            raise HandshakeFailed from error
        frames.start_reader = partial(reader.read_as_server, max_bytes)

    return _open(frames, answer, peer, private=private)


def connect(
    stream: trio.abc.Stream,
    *,
    host: str = "localhost",
    path: str = WEBSOCKET_PATH,
    max_bytes: int,
    first_bytes: int | None = None,
) -> AbstractAsyncContextManager[Transport]:
    """Do the client's part of the opening handshake on `stream`; otherwise like `accept`.

    Cancellation: as there.

    Raises:
        HandshakeFailed: on entering, when the server does not open a WebSocket.
        TransportClosed: on entering, when it closes the connection without a word.
    """
    frames = FrameStream(stream, client=True, max_bytes=max_bytes, first_bytes=first_bytes)
    return _open(frames, lambda reader: reader.connect(host, path, max_bytes), host)


@asynccontextmanager
async def _open(
    frames: FrameStream,
    handshake: Callable[[WebSocketReader], Awaitable[None]],
    peer: str,
    *,
    private: bool = False,
) -> AsyncGenerator[Transport, None]:
    try:
        async with tasks_beside() as nursery:
            reader = WebSocketReader(nursery, frames)
            await handshake(reader)
            yield _WebSocketTransport(reader, frames, peer, private=private)
    finally:
        await frames.abort()  # noqa: ASYNC102 - bounds itself


class _WebSocketTransport(SendsAtOnce, HasPings):
    """One side of an open WebSocket."""

    def __init__(
        self,
        reader: WebSocketReader,
        frames: FrameStream,
        peer: str,
        *,
        private: bool,
    ) -> None:
        self._peer = peer
        self._private = private
        self._reader = reader
        self._frames = frames
        self._closing = False
        self._end_lock = trio.Lock()  # many tasks may close it, and one of them reads the rest

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def private(self) -> bool:
        return self._private

    @property
    def gone(self) -> bool:
        return self._reader.ended.is_set() or self._frames.at_end

    @property
    def writing_since(self) -> float | None:
        return self._frames.outgoing.writing_since

    def share_pace(self, pace: Pace) -> None:
        self._frames.pace = pace

    @property
    def unread(self) -> int:
        return self._frames.unread_texts

    async def receive(self) -> str | bytes:
        if self._closing and self._frames.start_reader is not None:
            raise TransportClosed
        text = await self._frames.receive_text()
        message = await self._reader.get_message() if text is None else text
        if self._closing:
            raise TransportClosed
        return message

    def read_on(self) -> None:
        if self._frames.start_reader is not None and not self._frames.reads_text:
            self._frames.start_reader()

    def receive_unread(self) -> Sequence[str | bytes]:
        return () if self._closing else self._frames.take_texts()

    async def send(self, frames: Sequence[bytes]) -> None:
        try:
            await self._frames.outgoing.send_texts(frames)
        except GONE as error:
            raise TransportClosed from error

    @property
    def sends_at_once(self) -> bool:
        return self._frames.outgoing.takes_texts_at_once

    def send_at_once(self, frames: Sequence[bytes]) -> bool:
        return self._frames.outgoing.send_texts_at_once(frames)

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        self._closing = True
        self._frames.shut_tap()
        if self._frames.gauge.exceeded:
            code, reason = CloseCode.TOO_BIG, self._frames.gauge.excess
        with suppress(*GONE):
            await self._frames.outgoing.send_close(code, reason)
            if self._frames.start_reader is None or self._frames.reads_text:
                with suppress(TransportClosed):
                    while True:  # messages still on their way come before the peer's Close
                        await self._reader.get_message()
                if self._frames.gauge.saw_close:
                    return
                await self._reader.ended.wait()
            async with self._end_lock:
                await self._frames.discard()
