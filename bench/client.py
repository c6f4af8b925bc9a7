"""The client of all measurements: a blocking socket with as little as possible around it.

The client does not parse the frames of a stream: it finds where they end, and checks their
numbers. So it needs much less time than any server; the share it needs is measured, too.
"""

from __future__ import annotations

import base64
import json
import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from arcp_trio.wire.ids import new_id
from bench.peers import TOKENS

_PATIENCE_SECONDS: Final = 30.0
_READ_BYTES: Final = 256 * 1024
_TEXT: Final = 0x81  # this one and those below include FIN
_PING: Final = 0x89
_PONG: Final = 0x8A
_EVENT_SEQ: Final = b'"event_seq":'


class Client:
    """One session, whose numbers are checked to be 1, 2, 3, … (§8.3)."""

    def __init__(
        self,
        url: str,
        *,
        token: str = TOKENS[0],
        features: Sequence[str] = (),
        resume: Mapping[str, Any] | None = None,
    ) -> None:
        self.seq = 0 if resume is None else resume["last_event_seq"]
        """The last number received."""
        self._frames: deque[bytes] = deque()
        self._rest = b""
        self._session: dict[str, str] = {}
        parts = urlsplit(url)
        self._socket = socket.create_connection(
            (parts.hostname or "", parts.port or 80), _PATIENCE_SECONDS
        )
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._upgrade(parts.netloc, parts.path)
        self._hello(token, features, resume)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

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

    def _hello(self, token: str, features: Sequence[str], resume: Mapping[str, Any] | None) -> None:
        hello: dict[str, Any] = {
            "client": {"name": "bench", "version": "1.0.0"},
            "auth": {"scheme": "bearer", "token": token},
            "capabilities": {"encodings": ["json"], "features": list(features)},
        }
        if resume is not None:
            hello["resume"] = resume
        self.send("session.hello", hello)
        welcome = json.loads(self.receive())
        if welcome["type"] != "session.welcome":
            raise RuntimeError(f"no session: {welcome}")
        self._session = {"session_id": welcome["session_id"]}
        self._resume_token = welcome["payload"]["resume_token"]

    def resume_from(self, seq: int) -> Mapping[str, Any]:
        """Return the `resume` of another client's hello, to go on after this number (§6.3)."""
        return {**self._session, "resume_token": self._resume_token, "last_event_seq": seq}

    # -- sending

    def send(self, message_type: str, payload: Mapping[str, Any]) -> None:
        """Send one message."""
        frame = {"arcp": "1.1", "id": new_id(), "type": message_type, "payload": payload}
        self._send(_TEXT, json.dumps(frame | self._session).encode())

    def submit(self, agent: str, given: object) -> None:
        """Submit a job."""
        self.send("job.submit", {"agent": agent, "input": given})

    def _send(self, first: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        # A mask of zeros leaves the payload unchanged.
        self._socket.sendall(bytes((first,)) + length + bytes(4) + payload)

    # -- receiving

    def receive(self) -> bytes:
        """Receive the text of the next frame."""
        while not self._frames:
            self._split(self._rest + self._received())
        frame = self._frames.popleft()
        at = frame.find(_EVENT_SEQ)
        if at >= 0:
            self.seq += 1
            if not frame.startswith(b"%d," % self.seq, at + len(_EVENT_SEQ)):
                raise RuntimeError(f"expected event_seq {self.seq}: {frame!r}")
        elif b'"session.error"' in frame:
            raise RuntimeError(f"refused: {frame!r}")
        return frame

    def expect(self, message_type: str) -> dict[str, Any]:
        """Receive the next frame, which must be of this type, and return it parsed."""
        message: dict[str, Any] = json.loads(self.receive())
        if message["type"] != message_type:
            raise RuntimeError(f"not a {message_type}: {message}")
        return message

    def fileno(self) -> int:
        """Return the socket's descriptor, for a selector."""
        return self._socket.fileno()

    def receive_some(self) -> None:
        """Receive the frames that have arrived, waiting for some, and check their numbers."""
        self._split(self._rest + self._received())
        while self._frames:
            self.receive()

    def _received(self) -> bytes:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise RuntimeError("the server closed the connection")
        return data

    def _split(self, data: bytes) -> None:
        """Queue the complete WebSocket frames in the data, and keep the rest."""
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
                self._frames.append(data[start:end])
            elif data[at] == _PING:
                self._send(_PONG, data[start:end])
            else:
                raise RuntimeError(f"an unexpected frame: {data[at:end]!r}")
            at = end
        self._rest = data[at:]
