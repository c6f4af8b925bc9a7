"""A client that sends and receives raw frames, for tests of the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import trio

from arcp_trio.testing.frames import TERMINAL, Fields, Frame, parse_frame
from arcp_trio.testing.recorder import WireRecorder
from arcp_trio.transport.base import Transport
from arcp_trio.transport.frames import frame_header
from arcp_trio.wire.errors import error_from_payload
from arcp_trio.wire.features import ALL_FEATURES
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json

TEST_TOKEN: Final = "test-token"  # noqa: S105 - it opens nothing but a test's runtime
"""The bearer token that clients present by default."""

PATIENCE_SECONDS: Final = 60.0
"""How long a peer waits for a frame that a test expects."""

_BINARY: Final = 0x82  # FIN and opcode 2
_MASKED: Final = 0x80
_MASK_KEY: Final = bytes(4)  # clients must mask; a key of zeros leaves the payload unchanged


class Peer:
    """One raw connection to a runtime; made by `arcp_trio.testing.open_peer`.

    Nothing is read in the background: a peer whose test does not receive is a client that does not
    read. The `recorder` checks each frame that is received.

    `seen` keeps the frames that arrived while another one was expected. `patience` bounds the wait
    for an expected frame, in seconds of Trio's clock.
    """

    def __init__(
        self,
        transport: Transport,
        stream: trio.abc.Stream,
        recorder: WireRecorder,
        *,
        answer_pings: bool = True,
    ) -> None:
        self.transport = transport
        self.stream = stream
        self.recorder = recorder
        self.answer_pings = answer_pings
        self.patience = PATIENCE_SECONDS
        self.session_id: str | None = None
        self.resume_token: str | None = None
        self.seen: list[Frame] = []
        self.over = trio.Event()
        self._record = recorder.connection()
        self._ended: dict[str, Frame] = {}

    async def hello(
        self,
        *,
        token: str = TEST_TOKEN,
        features: tuple[str, ...] = ALL_FEATURES,
        resume: Fields | None = None,
        **extra: Json,
    ) -> Frame:
        """Open a session, or resume one, and return the welcome; `extra` goes into the payload.

        Raises:
            ArcpError: the runtime refused with the code of this class.
        """
        payload: Fields = {
            "client": {"name": "arcp_trio.testing", "version": "1"},
            "auth": {"scheme": "bearer", "token": token},
            "capabilities": {"encodings": ["json"], "features": list(features)},
        }
        if resume is not None:
            payload["resume"] = resume
        await self.send("session.hello", payload | extra)
        frame = await self._next("answer to session.hello", lambda _: True)
        if frame["type"] == "session.error":
            raise error_from_payload(frame["payload"])
        return frame

    def resume_from(self) -> Fields:
        """Return the `resume` of the next connection's hello, which goes on from here."""
        assert self.session_id is not None, "no session to resume"
        return {
            "session_id": self.session_id,
            "resume_token": self.resume_token,
            "last_event_seq": self.recorder.highest(self.session_id),
        }

    async def send(self, kind: str, payload: Fields | None = None, /, **envelope: Json) -> str:
        """Send one frame and return its id; `envelope` adds or replaces fields of its envelope."""
        frame: Frame = {"arcp": "1.1", "id": new_id(), "type": kind}
        if self.session_id is not None:
            frame["session_id"] = self.session_id
        frame |= envelope
        frame["payload"] = payload or {}
        self._record.sent(frame)
        await self.send_raw(msgspec.json.encode(frame).decode())
        return str(frame["id"])

    async def send_raw(self, text: str | bytes) -> None:
        """Send exactly this: a string in a text frame, bytes in a binary one."""
        if isinstance(text, str):
            await self.transport.send([text.encode()])
        else:
            # Transports send no binary messages, so the frame is made here (RFC 6455 §5.2).
            header = frame_header(_BINARY, len(text), _MASKED)
            await self.stream.send_all(header + _MASK_KEY + text)

    async def receive(self) -> Frame:
        """Wait for the next frame without a bound; answer pings instead of returning them.

        Raises:
            TransportClosed: no more frames will come.
        """
        while True:
            frame = parse_frame(await self.transport.receive())
            self._record.saw(frame)
            self._note(frame)
            if frame["type"] != "session.ping" or not self.answer_pings:
                return frame
            ping = frame["payload"]
            pong = {"ping_nonce": ping["nonce"], "received_at": ping["sent_at"]}
            await self.send("session.pong", pong)

    async def expect(self, kind: str, /, **fields: Json) -> Frame:
        """Return the next frame of a type with these fields, in its payload or its envelope.

        Frames before it go to `seen`.

        Raises:
            AssertionError: no such frame came within `patience`.
        """

        def fits(frame: Frame) -> bool:
            values = frame | frame["payload"]
            return frame["type"] == kind and all(
                name in values and values[name] == value for name, value in fields.items()
            )

        return await self._next(f"{kind} {fields or ''}", fits)

    async def submit(self, agent: str, input: Json = None, **fields: Json) -> Fields:  # noqa: A002 - the wire's name
        """Submit a job and return the payload of its acceptance.

        Raises:
            ArcpError: the runtime refused with the code of this class.
        """
        request = await self.send("job.submit", {"agent": agent, "input": input, **fields})
        return await self.answer("job.accepted", request)

    async def answer(self, kind: str, request: str) -> Fields:
        """Wait for the answer to a request, which must be of this type, and return its payload.

        Raises:
            ArcpError: the runtime refused with the code of this class.
        """
        frame = await self._next(
            f"answer to {request}", lambda frame: frame["payload"].get("request_id") == request
        )
        if frame["type"] == "session.error":
            raise error_from_payload(frame["payload"])
        assert frame["type"] == kind, f"not a {kind}: {frame}"
        payload: Fields = frame["payload"]
        return payload

    async def until_terminal(self, job_id: str) -> Frame:
        """Return the job's `job.result` or `job.error`, waiting for it if it has not come."""
        if job_id not in self._ended:
            await self._next(f"end of {job_id}", lambda _: job_id in self._ended)
        return self._ended[job_id]

    async def drop(self) -> None:
        """Close the stream without a Close."""
        await trio.aclose_forcefully(self.stream)
        self.over.set()

    async def close(self) -> None:
        """Close the connection with a Close; the session goes on without it."""
        await self.transport.close()
        self.over.set()

    async def _next(self, wanted: str, fits: Callable[[Frame], bool]) -> Frame:
        passed: list[str] = []
        with trio.move_on_after(self.patience):
            while not fits(frame := await self.receive()):
                self.seen.append(frame)
                passed.append(frame["type"])
            return frame
        raise AssertionError(f"no {wanted} within {self.patience} s, only {passed}")

    def _note(self, frame: Frame) -> None:
        kind = frame["type"]
        if kind == "session.welcome":
            self.session_id = frame["session_id"]
            self.resume_token = frame["payload"]["resume_token"]
        elif kind in {"job.accepted", "job.subscribed"}:
            self._ended.pop(frame["payload"]["job_id"], None)  # what there is to come comes anew
        elif kind in TERMINAL:
            self._ended[frame["job_id"]] = frame
