"""The task in which trio-websocket reads; the only module that imports trio-websocket.

A server has trio-websocket handle frames from the first unusual one on, most often the Close:
ordinary texts are taken before. A client has it from the beginning, for the opening handshake.

A peer can make trio-websocket's reader task raise, and other tasks then wait for ever. Here that
task has a fence around it: however it ends, the user of the transport gets `TransportClosed`, and
no other part of the program is affected.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
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

from arcp_trio.transport.base import GONE, HandshakeFailed, MessageTooBig, TransportClosed
from arcp_trio.transport.close_codes import CloseCode
from arcp_trio.transport.stream import QUEUED_MESSAGES, READ_BYTES, FrameStream

log = logging.getLogger(__name__)

_FOUND_BY_LIBRARY: Final = frozenset((CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_TEXT))
"""The errors that trio-websocket finds, and for which it leaves the Close to this module."""

_ABNORMAL: Final = CloseReason(1006, None)
"""Says that a connection has ended without a Close."""


class WebSocketReader:
    """Reads the frames of a connection that are for trio-websocket, in a task of its own.

    For a client it stands in for the nursery in which trio-websocket starts its only task.
    """

    def __init__(self, nursery: trio.Nursery, frames: FrameStream) -> None:
        self.ended: Final = trio.Event()
        self._nursery = nursery
        self._frames = frames
        self._handshake = trio.CancelScope()  # the handshake waits for the reader
        self._failure: Exception | None = None
        self._websocket: WebSocketConnection | None = None
        """What handles unusual frames, once there are any."""
        self._has_websocket = trio.Event()

    async def connect(self, host: str, path: str, max_bytes: int) -> None:
        """Do the client's part of the opening handshake.

        Raises:
            HandshakeFailed: the server does not open a WebSocket.
            TransportClosed: it closes the connection without a word.
        """
        with self._handshake, suppress(ConnectionClosed, *GONE):
            self._websocket = await wrap_client_stream(
                cast("trio.Nursery", self),
                cast("trio.SocketStream", self._frames),  # its annotation is too narrow
                host,
                path,
                message_queue_size=QUEUED_MESSAGES,
                max_message_size=max_bytes,
                receive_buffer_size=READ_BYTES,
            )
            return
        if isinstance(self._failure, ConnectionRejected):
            status = self._failure.status_code
            raise HandshakeFailed(f"refused with HTTP status {status}", status=status)
        if not self._frames.answered:
            raise TransportClosed("the handshake was not answered")
        raise HandshakeFailed

    def read_as_server(self, max_bytes: int) -> None:
        """Start the task of a server, whose handshake is over."""
        self._frames.start_reader = None
        self.start_soon(partial(self._read_as_server, max_bytes))

    def start_soon(self, read: Callable[[], Awaitable[None]]) -> None:
        """Start the task."""
        self._nursery.start_soon(self._run, read, name="WebSocket reader")

    async def get_message(self) -> str | bytes:
        """Return the next message that trio-websocket has read.

        Raises:
            MessageTooBig: the peer's message is over the limit.
            TransportClosed: no more messages will come. The peer has got a Close, if that is
                because of an error in its frames.
        """
        try:
            message = await self._get_message()
        except ConnectionClosed as closed:
            raise await self._end(closed.reason) from None
        self._frames.received(message)
        return message

    async def _get_message(self) -> str | bytes:
        if self._websocket is None and not self._frames.at_end:
            await self._has_websocket.wait()
        if self._websocket is None:
            raise ConnectionClosed(_ABNORMAL)
        return await self._websocket.get_message()

    async def _end(self, reason: CloseReason | None) -> TransportClosed:
        """Return the exception to raise, after a Close to the peer if this side found an error."""
        if self._frames.gauge.exceeded:
            return MessageTooBig(self._frames.gauge.excess, code=CloseCode.TOO_BIG)
        if reason is None:
            return TransportClosed()
        words = reason.reason or ""
        if reason.code in _FOUND_BY_LIBRARY:
            with suppress(*GONE):
                await self._frames.outgoing.send_close(reason.code, words)
        return TransportClosed(
            f"closed with {reason.code}" + (f": {words}" if words else ""), code=reason.code
        )

    async def _read_as_server(self, max_bytes: int) -> None:
        try:
            unusual = await self._frames.receive_some(READ_BYTES)
        except GONE:
            return
        if unusual:
            protocol = WSConnection(ConnectionType.SERVER)
            protocol.connection = Connection(ConnectionType.SERVER, trailing_data=unusual)
            self._websocket = WebSocketConnection(
                self._frames,
                protocol,
                message_queue_size=QUEUED_MESSAGES,
                max_message_size=max_bytes,
                receive_buffer_size=READ_BYTES,
            )
            self._has_websocket.set()
            # What its own functions do as well, after a handshake that has been done here.
            await self._websocket._reader_task()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def _run(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except Exception as error:  # the fence
            log.debug("the peer made trio-websocket fail", exc_info=error)
            self._failure = error
        finally:
            self.ended.set()
            self._has_websocket.set()
            self._frames.shut_tap()
            self._handshake.cancel()
