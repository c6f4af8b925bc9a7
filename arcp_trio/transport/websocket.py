"""WebSocket transports; the only module that imports trio-websocket.

A server has trio-websocket handle frames from the first unusual one on, most often the Close:
ordinary texts are taken before. A client has it from the beginning, for the opening handshake.

A peer can make trio-websocket's reader task raise, and other tasks then wait for ever. Here that
task has a fence around it: however it ends, the user of the transport gets `TransportClosed`, and
no other part of the program is affected.
"""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from hashlib import sha1
from typing import Final, cast

import trio
from trio_websocket import (
    CloseReason,
    ConnectionClosed,
    ConnectionRejected,
    WebSocketConnection,
    wrap_client_stream,
)
from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection

from arcp_trio.addresses import WEBSOCKET_PATH
from arcp_trio.nurseries import tasks_beside
from arcp_trio.transport.base import (
    GONE,
    HandshakeFailed,
    HasPings,
    MessageTooBig,
    SendsAtOnce,
    Transport,
    TransportClosed,
)
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.transport.pace import Pace
from arcp_trio.transport.stream import QUEUED_MESSAGES, READ_BYTES, FrameStream

log = logging.getLogger(__name__)

_GUID: Final = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Shows that a server knows WebSockets (RFC 6455 §1.3)."""
_SWITCHING: Final = (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Accept: {}\r\n\r\n"
)

_FOUND_BY_LIBRARY: Final = frozenset((CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_TEXT))
"""The errors that trio-websocket finds, and for which it leaves the Close to this module."""

_ABNORMAL: Final = CloseReason(1006, None)
"""Says that a connection has ended without a Close."""


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

    async def answer(reader: _FrameReader) -> None:
        proof = b64encode(sha1((key + _GUID).encode(), usedforsecurity=False).digest()).decode()
        try:
            await frames.outgoing.send_answer(_SWITCHING.format(proof).encode())
        except GONE as error:
            raise _not_finished() from error
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
        HandshakeFailed: on entering, when the server refuses or closes the connection.
    """
    frames = FrameStream(stream, client=True, max_bytes=max_bytes, first_bytes=first_bytes)

    async def ask(reader: _FrameReader) -> None:
        with reader.handshake, suppress(ConnectionClosed, *GONE):
            reader.websocket = await wrap_client_stream(
                cast("trio.Nursery", reader),
                cast("trio.SocketStream", frames),  # its annotation is narrower than what it takes
                host,
                path,
                message_queue_size=QUEUED_MESSAGES,
                max_message_size=max_bytes,
                receive_buffer_size=READ_BYTES,
            )
            return
        if isinstance(reader.failure, ConnectionRejected):
            status = reader.failure.status_code
            raise HandshakeFailed(f"refused with HTTP status {status}", status=status)
        raise _not_finished()

    return _open(frames, ask, host)


class _FrameReader:
    """Reads a connection's frames, in a task of its own.

    For a client it stands in for the nursery in which trio-websocket starts its only task.
    """

    def __init__(self, nursery: trio.Nursery, frames: FrameStream) -> None:
        self.ended = trio.Event()
        self.handshake = trio.CancelScope()  # the handshake waits for the reader
        self.failure: Exception | None = None
        self.websocket: WebSocketConnection | None = None
        """What handles unusual frames, once there are any."""
        self._has_websocket = trio.Event()
        self._nursery = nursery
        self._frames = frames

    async def get_message(self) -> str | bytes:
        """Return the next message that trio-websocket has read."""
        if self.websocket is None and not self._frames.at_end:
            await self._has_websocket.wait()
        if self.websocket is None:
            raise ConnectionClosed(_ABNORMAL)
        return await self.websocket.get_message()

    def start_soon(self, read: Callable[[], Awaitable[None]]) -> None:
        """Start the task."""
        self._nursery.start_soon(self._run, read, name="WebSocket reader")

    def read_as_server(self, max_bytes: int) -> None:
        """Start the task of a server, whose handshake is over."""
        self._frames.start_reader = None
        self.start_soon(partial(self._read_as_server, max_bytes))

    async def _read_as_server(self, max_bytes: int) -> None:
        try:
            unusual = await self._frames.receive_some(READ_BYTES)
        except GONE:
            return
        if unusual:
            protocol = WSConnection(ConnectionType.SERVER)
            protocol.connection = Connection(ConnectionType.SERVER, trailing_data=unusual)
            self.websocket = WebSocketConnection(
                self._frames,
                protocol,
                message_queue_size=QUEUED_MESSAGES,
                max_message_size=max_bytes,
                receive_buffer_size=READ_BYTES,
            )
            self._has_websocket.set()
            # What its own functions do as well, after a handshake that has been done here.
            await self.websocket._reader_task()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def _run(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except Exception as error:  # the fence
            log.debug("the peer made trio-websocket fail", exc_info=error)
            self.failure = error
        finally:
            self.ended.set()
            self._has_websocket.set()
            self._frames.shut_tap()
            self.handshake.cancel()


@asynccontextmanager
async def _open(
    frames: FrameStream,
    handshake: Callable[[_FrameReader], Awaitable[None]],
    peer: str,
    *,
    private: bool = False,
) -> AsyncGenerator[Transport, None]:
    try:
        async with tasks_beside() as nursery:
            reader = _FrameReader(nursery, frames)
            await handshake(reader)
            yield _WebSocketTransport(reader, frames, peer, private=private)
    finally:
        await frames.abort()  # noqa: ASYNC102 - bounds itself


def _not_finished() -> HandshakeFailed:
    return HandshakeFailed("the peer did not finish the opening handshake")


class _WebSocketTransport(SendsAtOnce, HasPings):
    """One side of an open WebSocket."""

    def __init__(
        self,
        reader: _FrameReader,
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
        try:
            text = await self._frames.receive_text()
            message = await self._get_message() if text is None else text
        except ConnectionClosed as error:
            raise await self._end(error.reason) from None
        if self._closing:
            raise TransportClosed
        return message

    async def _get_message(self) -> str | bytes:
        message = await self._reader.get_message()
        self._frames.received(message)
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
            code, reason = CloseCode.TOO_BIG, self._too_big
        with suppress(*GONE):
            await self._frames.outgoing.send_close(code, reason)
            if self._frames.start_reader is None or self._frames.reads_text:
                with suppress(ConnectionClosed):
                    while True:  # messages still on their way come before the peer's Close
                        await self._get_message()
                if self._frames.gauge.saw_close:
                    return
                await self._reader.ended.wait()
            async with self._end_lock:
                await self._frames.discard()

    async def _end(self, reason: CloseReason | None) -> TransportClosed:
        """Return the exception to raise, after a Close to the peer if this side found an error."""
        if self._frames.gauge.exceeded:
            return MessageTooBig(self._too_big, code=CloseCode.TOO_BIG)
        if reason is None:
            return TransportClosed()
        words = reason.reason or ""
        if reason.code in _FOUND_BY_LIBRARY:
            await self._tell(reason.code, words)
        return TransportClosed(
            f"closed with {reason.code}" + (f": {words}" if words else ""), code=reason.code
        )

    @property
    def _too_big(self) -> str:
        gauge = self._frames.gauge
        return (
            f"a message of more than {gauge.most_bytes} bytes or {gauge.most_fragments} fragments"
        )

    async def _tell(self, code: int, words: str) -> None:
        with suppress(*GONE):
            await self._frames.outgoing.send_close(code, words)
