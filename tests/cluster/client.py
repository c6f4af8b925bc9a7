"""A client that stays at work whatever happens to the nodes, and checks every frame."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from arcp_trio import ArcpError, Json, ResumeWindowExpired
from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.transport.base import TransportClosed
from arcp_trio.transport.websocket import connect
from tests.cluster.balancer import Entrance
from tests.cluster.nodes import token_of

FRAME_BYTES: Final = 4 * 1024 * 1024
PATIENCE_SECONDS: Final = 60.0
"""The bound on a wait, on a machine that is busy with other things."""

_WELCOME_SECONDS: Final = 3.0
_SILENCE_SECONDS: Final = 3.0
"""After how long a connection counts as lost; its heartbeats come every second."""
_AGAIN_SECONDS: Final = 0.1


class Client:
    """One session, attached to a node whenever there is one, and resumed after each loss."""

    def __init__(
        self, balancer: Entrance, principal: str = "alice", patience: float = PATIENCE_SECONDS
    ) -> None:
        """Make a client of what a balancer stands before.

        Args:
            balancer: whom it connects to.
            principal: who it is.
            patience: seconds that it waits for anything.
        """
        self.recorder = WireRecorder()
        self.principal = principal
        self.resumes = 0
        self.lost_sessions = 0
        """Sessions that could not be resumed."""
        self.keyed: dict[str, str] = {}
        """Jobs by their keys."""
        self.codes: list[int | None] = []
        """The close codes of the connections so far."""
        self.values: dict[str, str | None] = {}
        """By job, the value of its credential, as it was told of it last."""
        self.replays = False
        """Whether a resume brings everything again."""
        self._balancer = balancer
        self._patience = patience
        self._peer: Peer | None = None
        self._resume: Frame | None = None
        self._answers: dict[str, Frame] = {}
        """By request: acceptances, errors and other answers."""
        self._cancelled: set[str] = set()
        """Jobs whose cancels were promised, by a frame that names no request."""
        self._said: dict[str, int] = {}
        """How far each job has counted."""
        self._ended: dict[str, Frame] = {}
        """By job: the payload of its terminal, and its type."""
        self._news = trio.Event()
        self._sending = trio.Lock()

    @property
    def session_id(self) -> str:
        """The session that it has."""
        assert self._resume is not None
        return str(self._resume["session_id"])

    # -- connections

    async def run(self) -> None:
        """Be attached, until cancelled."""
        while True:
            with suppress(OSError, TransportClosed, trio.TooSlowError):
                await self._attached()
            self._peer = None
            self._tell()
            await trio.sleep(_AGAIN_SECONDS)

    async def _attached(self) -> None:
        with trio.fail_after(_WELCOME_SECONDS):
            stream = await trio.open_tcp_stream("127.0.0.1", self._balancer.port)
        async with stream:
            with trio.fail_after(_WELCOME_SECONDS) as handshake:
                async with connect(stream, max_bytes=FRAME_BYTES) as transport:
                    peer = Peer(transport, stream, self.recorder, answer_pings=False)
                    if not await self._welcomed(peer):
                        return
                    handshake.deadline = float("inf")
                    try:
                        await self._read(peer)
                    except TransportClosed as closed:
                        self.codes.append(closed.code)
                        raise

    async def _welcomed(self, peer: Peer) -> bool:
        try:
            await peer.hello(token=token_of(self.principal), resume=self._resume_from())
        except ResumeWindowExpired:
            self.lost_sessions += 1
            self._resume = None
            return False
        except ArcpError as refusal:
            if not refusal.retryable:
                raise
            return False
        self.resumes += self._resume is not None
        self._resume = peer.resume_from()
        self._peer = peer
        self._tell()
        return True

    def _resume_from(self) -> Frame | None:
        if self._resume is None:
            return None
        highest = 0 if self.replays else self.recorder.highest(self._resume["session_id"])
        return {**self._resume, "last_event_seq": highest}

    async def _read(self, peer: Peer) -> None:
        while True:
            with trio.fail_after(_SILENCE_SECONDS):
                frame = await peer.receive()
            if frame["type"] == "session.ping":
                ping = frame["payload"]
                pong = {"ping_nonce": ping["nonce"], "received_at": ping["sent_at"]}
                async with self._sending:
                    await peer.send("session.pong", pong)
            self._note(frame)

    def _note(self, frame: Frame) -> None:
        kind, payload = frame["type"], frame["payload"]
        if (request := payload.get("request_id")) is not None:
            self._answers[request] = frame
        elif kind == "job.cancelled":
            self._cancelled.add(payload["job_id"])
        if kind in TERMINAL:
            self._ended.setdefault(frame["job_id"], {**payload, "type": kind})
        self._check_count(frame)
        self._note_value(frame)
        self._tell()

    def _check_count(self, frame: Frame) -> None:
        """Check that a job's lines come one after the other; the recorder checks repeats."""
        job_id, payload = frame.get("job_id"), frame["payload"]
        if frame["type"] == "job.event" and payload["kind"] == "log" and job_id is not None:
            said, due = int(payload["body"]["message"]), self._said.get(job_id, 0)
            assert said <= due, f"{job_id} says {said} where {due} is due"
            self._said[job_id] = max(due, said + 1)

    def _note_value(self, frame: Frame) -> None:
        payload = frame["payload"]
        if frame["type"] in ("job.accepted", "job.subscribed"):
            told = payload.get("credentials")
            self.values[payload["job_id"]] = told[0]["value"] if told else None
        elif payload.get("kind") == "status" and payload["body"]["phase"] == "credential_rotated":
            self.values[frame["job_id"]] = payload["body"].get("value")

    def _tell(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def until(self, what: str, holds: Callable[[], object]) -> None:
        """Wait until the condition is true."""
        with trio.move_on_after(self._patience):
            while not holds():
                await self._news.wait()
            return
        raise AssertionError(f"no {what} within {self._patience} s: {self}")

    def __repr__(self) -> str:
        session = self._resume and self._resume["session_id"]
        seen = self.recorder.highest(session) if session else 0
        return f"<{session}, attached {self._peer is not None}, {seen} seen, {self.codes}>"

    # -- what it asks for

    async def attached(self) -> None:
        """Wait until it has a connection."""
        await self.until("connection", lambda: self._peer is not None)

    async def ask(
        self, kind: str, payload: Frame, settled: Callable[[], object] = lambda: None
    ) -> Frame | None:
        """Send a request, and return the answer; again, if the connection is lost before it.

        With an answer that names no request, `settled` tells that it has come: then there is None.
        """
        while True:
            await self.attached()
            peer = self._peer
            assert peer is not None
            request = await self._send(peer, kind, payload)
            await self.until(
                f"answer to {kind} {payload}",
                lambda old=peer, name=request: (  # type: ignore[misc]
                    settled() or name in self._answers or self._peer is not old
                ),
            )
            if request in self._answers:
                return self._answers.pop(request)
            if settled():
                return None

    async def _send(self, peer: Peer, kind: str, payload: Frame) -> str | None:
        """Send a request, and return its id; None if the connection is lost."""
        try:
            async with self._sending:
                return await peer.send(kind, payload)
        except (TransportClosed, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            await self.until("end of a lost connection", lambda: self._peer is not peer)
            return None

    async def submit(self, agent: str, input_: Json, key: str, **fields: Json) -> str:
        """Submit a job until it is accepted, and return its id."""
        payload: Frame = {"agent": agent, "input": input_, "idempotency_key": key, **fields}
        while True:
            answer = await self.ask("job.submit", payload)
            assert answer is not None
            if answer["type"] == "job.accepted":
                job_id = str(answer["payload"]["job_id"])
                assert self.keyed.setdefault(key, job_id) == job_id, f"{key} has two jobs"
                return job_id
            assert answer["payload"]["retryable"], answer
            await trio.sleep(_AGAIN_SECONDS)

    async def cancel(self, job_id: str) -> None:
        """Cancel a job until it is promised, or has ended."""
        while True:
            answer = await self.ask(
                "job.cancel", {"job_id": job_id}, lambda: job_id in self._cancelled
            )
            if answer is None or not answer["payload"]["retryable"]:
                return
            await trio.sleep(_AGAIN_SECONDS)

    async def subscribe(self, job_id: str) -> None:
        """Follow a job from its first event on."""
        while True:
            answer = await self.ask("job.subscribe", {"job_id": job_id, "history": True})
            assert answer is not None
            if answer["type"] == "job.subscribed":
                return
            assert answer["payload"]["retryable"], answer
            await trio.sleep(_AGAIN_SECONDS)

    # -- what it has seen

    def said(self, job_id: str) -> int:
        """Return how many lines of a job have come."""
        return self._said.get(job_id, 0)

    async def heard(self, job_id: str, lines: int) -> None:
        """Wait until this many lines of a job have come."""
        await self.until(f"line {lines} of {job_id}", lambda: self.said(job_id) >= lines)

    def has_ended(self, job_id: str) -> bool:
        """Whether a job's terminal has come."""
        return job_id in self._ended

    async def end(self, job_id: str) -> Frame:
        """Wait for a job's terminal; return its payload with its type."""
        await self.until(f"end of {job_id}", lambda: job_id in self._ended)
        return self._ended[job_id]

    async def counted(self, job_id: str, total: int) -> None:
        """Wait until a job has counted to its end, and check that nothing is missing."""
        end = await self.end(job_id)
        assert (end["type"], end.get("result")) == ("job.result", total), end
        assert self.said(job_id) == total
