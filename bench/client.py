"""The client of all measurements.

It does not parse the frames of a stream, and only checks their numbers. So it needs much less time
than any server; the share that it needs is measured, too.
"""

from __future__ import annotations

import json
import selectors
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from arcp_trio.wire.ids import new_id
from bench.peers import TOKENS
from bench.websocket import PATIENCE_SECONDS, WebSocket

_EVENT_SEQ: Final = b'"event_seq":'


class Client(WebSocket):
    """One session, whose numbers are checked to be 1, 2, 3, … (§8.3)."""

    def __init__(
        self,
        url: str,
        *,
        token: str = TOKENS[0],
        features: Sequence[str] = (),
        resume: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(url)
        self.seq = 0 if resume is None else resume["last_event_seq"]
        """The last number received."""
        self._frames: deque[bytes] = deque()
        self._session: dict[str, str] = {}
        self._hello(token, features, resume)

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

    def send(self, message_type: str, payload: Mapping[str, Any]) -> None:
        """Send one message."""
        frame = {"arcp": "1.1", "id": new_id(), "type": message_type, "payload": payload}
        self.send_text(json.dumps(frame | self._session).encode())

    def submit(self, agent: str, given: object) -> None:
        """Submit a job."""
        self.send("job.submit", {"agent": agent, "input": given})

    def bye(self) -> None:
        """Close the session."""
        self.send("session.bye", {"reason": "done"})

    def receive(self) -> bytes:
        """Receive the text of the next frame."""
        while not self._frames:
            self._frames.extend(self.receive_texts())
        return self._checked(self._frames.popleft())

    def expect(self, message_type: str) -> dict[str, Any]:
        """Receive the next frame, which must be of this type, and return it parsed."""
        message: dict[str, Any] = json.loads(self.receive())
        if message["type"] != message_type:
            raise RuntimeError(f"not a {message_type}: {message}")
        return message

    def receive_some(self) -> list[bytes]:
        """Receive the frames that have arrived, after waiting for some bytes."""
        frames = [*self._frames, *self.receive_texts()]
        self._frames.clear()
        return [self._checked(frame) for frame in frames]

    def _checked(self, frame: bytes) -> bytes:
        at = frame.find(_EVENT_SEQ)
        if at >= 0:
            self.seq += 1
            if not frame.startswith(b"%d," % self.seq, at + len(_EVENT_SEQ)):
                raise RuntimeError(f"expected event_seq {self.seq}: {frame!r}")
        elif b'"session.error"' in frame:
            raise RuntimeError(f"refused: {frame!r}")
        return frame


def arrivals(clients: Sequence[Client]) -> Iterator[tuple[Client, list[bytes]]]:
    """Yield the frames that arrive for each of many clients, for as long as they are wanted."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ, client)
        while ready := selector.select(PATIENCE_SECONDS):
            for key, _ in ready:
                yield key.data, key.data.receive_some()
    raise RuntimeError("nothing has arrived for a minute")
