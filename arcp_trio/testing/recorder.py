"""A record of the frames that clients received, which checks the promises of the protocol."""

from __future__ import annotations

from typing import Final

import msgspec
from attrs import define, field

from arcp_trio.testing.frames import Frame, FrameError, check_frame, require
from arcp_trio.testing.session_record import JobRecord, SessionRecord, Subscription
from arcp_trio.wire.errors import ResumeWindowExpired

_SHOWN_CHARACTERS: Final = 1_000
"""How much of a wrong frame an error message quotes."""


@define(eq=False)
class ConnectionRecord:
    """The frames of one connection; made by `WireRecorder.connection`."""

    _sessions: dict[str, SessionRecord]
    _session: SessionRecord | None = None
    _resume_after: int | None = None
    _next_seq: int = 1
    _ids: set[tuple[str, int | None]] = field(factory=set[tuple[str, "int | None"]])
    _parted: frozenset[str] = frozenset()
    """Jobs that the client unsubscribed from on this connection, and did not subscribe to again."""
    _behind_parting: dict[str, frozenset[str]] = field(factory=dict[str, frozenset[str]])
    """The value of `_parted` when each request was sent, by the id of the request."""
    _arcp: str | None = None
    _over: bool = False

    def resumed(self, last_event_seq: int) -> None:
        """Record that the client asks to resume: after the welcome, numbers follow this one."""
        self._resume_after = last_event_seq

    def sent(self, frame: Frame) -> None:
        """Record a frame of the client: its answer shows which earlier frames may still come."""
        payload = frame["payload"]
        job_id = payload.get("job_id")
        # In a hello and in a session.resume alike, it asks for the numbers after it.
        resume_after = payload.get("resume", payload).get("last_event_seq")
        if isinstance(resume_after, int):
            self.resumed(resume_after)
        if frame["type"] == "job.subscribe":
            self._parted = frozenset(parted for parted in self._parted if parted != job_id)
        elif frame["type"] == "job.unsubscribe" and isinstance(job_id, str):
            self._parted |= {job_id}
        if self._parted:
            self._behind_parting[frame["id"]] = self._parted

    def saw(self, frame: Frame) -> None:
        """Check and add the runtime's next frame, or raise an AssertionError that quotes it."""
        text = msgspec.json.encode(frame)
        try:
            check_frame(frame)
            self._follow(frame, msgspec.json.encode(_as_repeated(frame)))
        except FrameError as problem:
            shown = text.decode()[:_SHOWN_CHARACTERS]
            raise AssertionError(f"{problem}: {shown}") from None

    def _follow(self, frame: Frame, text: bytes) -> None:
        require(not self._over, "a frame after the last one of the connection")
        if frame["type"] == "session.welcome":
            self._welcomed(frame)
        self._over = frame["type"] == "session.closed"
        if self._session is None:
            require(frame["type"] == "session.error", "a frame before session.welcome")
            self._over = True
            return
        require(frame["session_id"] == self._session.id, "the session_id of another session")
        require(frame["arcp"] == self._arcp, "another arcp version than the welcome's")
        if not self._is_replay(self._session, frame, text):
            self._end_subscriptions(self._session, frame)
            if not self._is_late(self._session, frame):
                self._session.take(frame)

    def _is_late(self, session: SessionRecord, frame: Frame) -> bool:
        """Return whether a frame is out of date: the session has gone on elsewhere since."""
        return frame["type"] == "job.subscribed" and self._next_seq <= session.highest

    def _end_subscriptions(self, session: SessionRecord, frame: Frame) -> None:
        """Record which jobs are no longer observed once an answer has come.

        Frames of an unsubscribed job that were on their way come before the answer.
        """
        payload = frame["payload"]
        for job_id in self._behind_parting.get(payload.get("request_id"), ()):
            session.unsubscribed(job_id)
        if frame["type"] == "session.error" and payload["code"] == ResumeWindowExpired.code:
            session.unsubscribed(payload.get("job_id", ""))

    def _welcomed(self, frame: Frame) -> None:
        session_id, token = frame["session_id"], frame["payload"].get("resume_token")
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = SessionRecord(session_id)
            self._next_seq = 1
        else:
            # A second welcome on a connection is right only when a `session.resume` replaces the
            # fresh session by another one.
            require(session is not self._session, "a second session.welcome")
            require(self._resume_after is not None, "a session welcomed again without a resume")
            self._next_seq = (self._resume_after or 0) + 1
        require(token and token not in session.tokens, "the resume_token did not rotate")  # §6.3
        session.tokens.add(token)
        self._session, self._arcp = session, frame["arcp"]

    def _is_replay(self, session: SessionRecord, frame: Frame, text: bytes) -> bool:
        """Check the id and number of a frame; return whether the session has seen it before."""
        frame_id, number = frame["id"], frame.get("event_seq")
        place = frame_id, number
        require(place not in self._ids, "an id twice on one connection")
        self._ids.add(place)
        first = session.first.setdefault(frame_id, number)
        once = first == number or (number is not None and session.may_repeat(frame))
        require(once, "an id that was another frame before")
        if number is not None:
            require(number == self._next_seq, f"event_seq {number} where {self._next_seq} is due")
            self._next_seq += 1
            known = session.numbered.setdefault(number, frame_id)
            require(known == frame_id, f"event_seq {number} was another frame before")
            session.highest = max(session.highest, number)
        before = session.seen.setdefault(place, text)
        require(before == text, "an id that was another frame before")
        return before is not text


class WireRecorder:
    """All frames that the clients of one runtime received, each checked when it arrives.

    Each connection adds to its own `connection()`, in the order of arrival. A session may go
    through several connections, and is checked across them.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, SessionRecord] = {}

    def connection(self) -> ConnectionRecord:
        """Return the record of a new connection."""
        return ConnectionRecord(self._sessions)

    def highest(self, session_id: str) -> int:
        """Return the highest `event_seq` seen in a session, 0 before the first."""
        session = self._sessions.get(session_id)
        return 0 if session is None else session.highest

    def events(self, job_id: str, *, session_id: str | None = None) -> list[Frame]:
        """Return a job's `job.event` frames, each once, in order.

        Without a session, the job must have been seen in one session only.
        """
        job = self._job(job_id, session_id)
        return [] if job is None else list(job.events)

    def terminal(self, job_id: str, *, session_id: str | None = None) -> Frame | None:
        """Return a job's `job.result` or `job.error`, None while it has not been seen."""
        job = self._job(job_id, session_id)
        return None if job is None else job.terminal

    def subscriptions(self, job_id: str, *, session_id: str) -> list[Subscription]:
        """Return a session's subscriptions to a job, in order, each with its frames."""
        job = self._job(job_id, session_id)
        return [] if job is None else list(job.subscriptions)

    def _job(self, job_id: str, session_id: str | None) -> JobRecord | None:
        sessions = self._sessions.values() if session_id is None else [self._sessions[session_id]]
        seen = [session.jobs[job_id] for session in sessions if job_id in session.jobs]
        if len(seen) > 1:
            raise ValueError(f"{job_id} was seen in {len(seen)} sessions: say which")
        return seen[0] if seen else None


def _as_repeated(frame: Frame) -> Frame:
    """Return a frame without its credentials, which a replay of it need not repeat.

    A replay has them as they are then: with another value after a rotation, and not at all once
    they are revoked.
    """
    payload = frame["payload"]
    if "credentials" in payload and frame["type"] == "job.accepted":
        return {**frame, "payload": {n: v for n, v in payload.items() if n != "credentials"}}
    if payload.get("kind") == "status" and payload["body"].get("phase") == "credential_rotated":
        body = {name: payload["body"][name] for name in ("phase", "id")}
        return {**frame, "payload": {**payload, "body": body}}
    return frame
