"""WebSocket transports. The only module that knows trio-websocket.

trio-websocket lets a peer raise exceptions out of its reader task, and waits for ever where that
task has ended. Here the task has a fence around it: whatever ends it, the one using the transport
sees `TransportClosed`, and nothing else in the program notices.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, cast

import trio
from trio_websocket import (
    CloseReason,
    ConnectionClosed,
    ConnectionRejected,
    WebSocketConnection,
    wrap_client_stream,
    wrap_server_stream,
)

from arcp_trio.addresses import WEBSOCKET_PATH
from arcp_trio.transport.base import (
    GONE,
    HandshakeFailed,
    MessageTooBig,
    Transport,
    TransportClosed,
)
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.transport.frames import MAX_FRAGMENTS
from arcp_trio.transport.stream import QUEUED_MESSAGES, FrameStream

log = logging.getLogger(__name__)

_READ_BYTES: Final = 64 * 1024

_HOST: Final = re.compile(rb"^Host:[^\r\n]*", re.IGNORECASE | re.MULTILINE)

#: trio-websocket finds these errors, and leaves the Close to this module.
_FOUND_BY_LIBRARY: Final = frozenset((CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_TEXT))

_Handshake = Callable[[trio.Nursery, FrameStream], Awaitable[WebSocketConnection]]


def accept(
    stream: trio.abc.Stream,
    *,
    received: bytes = b"",
    max_bytes: int,
    first_bytes: int | None = None,
    peer: str,
    private: bool = False,
) -> AbstractAsyncContextManager[Transport]:
    """Do the server's part of the opening handshake on `stream`; the block has the transport.

    Leaving the block closes `stream` by force; say farewell with `Transport.close` before. What a
    peer does wrong later only ever shows as `TransportClosed` from the transport; what the block
    raises comes out as it is.

    Args:
        received: what has been read from `stream` already; whether there is a WebSocket at the path
            that the request names is for the one to decide who has read it.
        max_bytes: what one message may have, in bytes.
        first_bytes: what the first one may have, if that is less. Little more than that is read
            before a second one is asked for.
        peer: who is at the other end, for logs.
        private: whether nobody can read along on `stream`.

    Cancellation: a peer may take its time over the handshake, so bound it. A cancel scope may be
    opened around the whole block, and its deadline lifted inside.

    Raises:
        HandshakeFailed: on entering, when there is no WebSocket handshake.
    """

    async def answer(nursery: trio.Nursery, frames: FrameStream) -> WebSocketConnection:
        request = await wrap_server_stream(
            nursery,
            frames,
            message_queue_size=QUEUED_MESSAGES,
            max_message_size=max_bytes,
            receive_buffer_size=_READ_BYTES,
        )
        return await request.accept()

    # wsproto fails on the host xn--p1ai:7777, as .рф is in a request; nobody asks it for the host.
    received = _HOST.sub(b"Host: localhost", received, count=1)
    frames = FrameStream(
        stream, client=False, max_bytes=max_bytes, first_bytes=first_bytes, received=received
    )
    return _open(frames, answer, peer, private=private)


def connect(
    stream: trio.abc.Stream,
    *,
    host: str = "localhost",
    path: str = WEBSOCKET_PATH,
    max_bytes: int,
) -> AbstractAsyncContextManager[Transport]:
    """Do the client's part of the opening handshake on `stream`; else like `accept`.

    Raises:
        HandshakeFailed: on entering, when the server refuses or goes away.
    """

    async def ask(nursery: trio.Nursery, frames: FrameStream) -> WebSocketConnection:
        return await wrap_client_stream(
            nursery,
            cast("trio.SocketStream", frames),  # any stream will do
            host,
            path,
            message_queue_size=QUEUED_MESSAGES,
            max_message_size=max_bytes,
            receive_buffer_size=_READ_BYTES,
        )

    frames = FrameStream(stream, client=True, max_bytes=max_bytes)
    return _open(frames, ask, host)


class _FrameReader:
    """Stands in for the nursery in which trio-websocket starts its reader task, its only one."""

    def __init__(self, nursery: trio.Nursery, frames: FrameStream) -> None:
        self.ended = trio.Event()
        self.handshake = trio.CancelScope()  # what the handshake waits for comes from the reader
        self.failure: Exception | None = None
        self._nursery = nursery
        self._frames = frames

    def start_soon(self, read: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(self._run, read, name="WebSocket reader")

    async def _run(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except Exception as exc:  # the fence
            log.debug("the peer made trio-websocket fail", exc_info=exc)
            self.failure = exc
        finally:
            self.ended.set()
            self._frames.shut_tap()
            self.handshake.cancel()


@asynccontextmanager
async def _open(
    frames: FrameStream,
    handshake: _Handshake,
    peer: str,
    *,
    private: bool = False,
) -> AsyncGenerator[Transport, None]:
    aside = _Aside()
    try:
        async with trio.open_nursery() as nursery:
            reader = _FrameReader(nursery, frames)
            with aside:
                websocket = await _shake_hands(reader, frames, handshake)
                yield _WebSocketTransport(websocket, frames, reader.ended, peer, private=private)
            # Only the reader is left. Shielded, so that an outer cancellation cannot end the wait
            # for it with an exception that would take the place of the one put aside.
            nursery.cancel_scope.shield = True
            nursery.cancel_scope.cancel()
    finally:
        await frames.abort()  # noqa: ASYNC102 - bounds itself
    if aside.raised is not None:
        raise aside.raised


class _Aside:
    """Keeps what a block raises until it can be raised outside of a nursery, that is, ungrouped."""

    raised: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _type: object, raised: BaseException | None, _traceback: object) -> bool:
        self.raised = raised
        return True


async def _shake_hands(
    reader: _FrameReader, frames: FrameStream, handshake: _Handshake
) -> WebSocketConnection:
    with reader.handshake, suppress(ConnectionClosed):
        return await handshake(cast("trio.Nursery", reader), frames)
    if isinstance(reader.failure, ConnectionRejected):
        status = reader.failure.status_code
        raise HandshakeFailed(f"refused with HTTP status {status}", status=status)
    raise HandshakeFailed("the peer did not finish the opening handshake")


class _WebSocketTransport:
    """An open WebSocket, either side of it."""

    def __init__(
        self,
        websocket: WebSocketConnection,
        frames: FrameStream,
        reader_ended: trio.Event,
        peer: str,
        *,
        private: bool,
    ) -> None:
        self.peer: Final = peer
        self.private: Final = private
        self._websocket = websocket
        self._frames = frames
        self._reader_ended = reader_ended
        self._closing = False
        self._end_lock = trio.Lock()  # any number of tasks may say farewell, one reads what is left

    @property
    def writing_since(self) -> float | None:
        return self._frames.writing_since

    @property
    def unread(self) -> int:
        return self._frames.unread_texts

    async def receive(self) -> str | bytes:
        try:
            text = await self._frames.receive_text()
            message = await self._get_message() if text is None else text
        except ConnectionClosed as exc:
            raise await self._end(exc.reason) from None
        if self._closing:
            raise TransportClosed
        return message

    async def _get_message(self) -> str | bytes:
        message = await self._websocket.get_message()
        self._frames.received(message)
        return message

    def receive_unread(self) -> Sequence[str | bytes]:
        return () if self._closing else self._frames.take_texts()

    async def send(self, frames: Sequence[bytes]) -> None:
        try:
            await self._frames.send_texts(frames)
        except GONE as exc:
            raise TransportClosed from exc

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        self._closing = True
        self._frames.shut_tap()
        if self._frames.gauge.exceeded:
            code, reason = CloseCode.TOO_BIG, self._too_big
        with suppress(*GONE):
            await self._frames.send_close(code, reason)
            with suppress(ConnectionClosed):
                while True:  # what was still under way comes before the peer's Close
                    await self._get_message()
            if not self._frames.gauge.saw_close:
                await self._reader_ended.wait()
                async with self._end_lock:
                    await self._frames.discard()

    async def _end(self, reason: CloseReason | None) -> TransportClosed:
        """Return what to raise, having told the peer if it is this side that ends it."""
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
        most = self._frames.gauge.most_bytes
        return f"a message of more than {most} bytes or {MAX_FRAGMENTS} fragments"

    async def _tell(self, code: int, words: str) -> None:
        with suppress(*GONE):
            await self._frames.send_close(code, words)
