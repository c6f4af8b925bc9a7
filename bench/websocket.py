"""The client's end of a WebSocket: a blocking socket with as little as possible around it."""

from __future__ import annotations

import base64
import os
import socket
from types import TracebackType
from typing import Final, Self
from urllib.parse import urlsplit

PATIENCE_SECONDS: Final = 60.0
_READ_BYTES: Final = 256 * 1024
_TEXT: Final = 0x81  # this one and those below include FIN
_PING: Final = 0x89
_PONG: Final = 0x8A
_CLOSE: Final = 0x88


class WebSocket:
    """A connection that is upgraded; it finds frames and does not look into them."""

    def __init__(self, url: str) -> None:
        self.closed = False
        """Whether the server has said that it closes the connection, and was answered."""
        self._rest = b""
        parts = urlsplit(url)
        self._socket = socket.create_connection(
            (parts.hostname or "", parts.port or 80), PATIENCE_SECONDS
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._upgrade(parts.netloc, parts.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket, without a farewell."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the socket's descriptor, for a selector."""
        return self._socket.fileno()

    def send_text(self, text: bytes) -> None:
        """Send a frame."""
        self._send(_TEXT, text)

    def receive_texts(self) -> list[bytes]:
        """Return the texts of the frames that have arrived since, after waiting for some bytes.

        The list is empty if the bytes do not make up a frame yet.
        """
        return self._split(self._rest + self._received())

    def _upgrade(self, host: str, path: str) -> None:
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self._received()
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise RuntimeError(f"not a WebSocket: {answer!r}")
        self._rest = answer.partition(b"\r\n\r\n")[2]

    def _send(self, first: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        # A mask of zeros leaves the payload unchanged.
        self._socket.sendall(bytes((first,)) + length + bytes(4) + payload)

    def _received(self) -> bytes:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise RuntimeError("the server closed the connection")
        return data

    def _split(self, data: bytes) -> list[bytes]:
        """Return the texts of the complete frames in the data, and keep the rest."""
        texts: list[bytes] = []
        at, size = 0, len(data)
        while at + 2 <= size:
            length, start = data[at + 1], at + 2
            if length >= 126:
                start += 2 if length == 126 else 8
                length = int.from_bytes(data[at + 2 : start], "big")
            # A length that is cut off is read wrong, but then the payload begins beyond the data.
            end = start + length
            if start > size or end > size:
                break
            if data[at] == _TEXT:
                texts.append(data[start:end])
            elif data[at] == _PING:
                self._send(_PONG, data[start:end])
            elif data[at] == _CLOSE:
                self._send(_CLOSE, data[start:end])
                self.closed = True
            else:
                raise RuntimeError(f"an unexpected frame: {data[at:end]!r}")
            at = end
        self._rest = data[at:]
        return texts
