"""A record of what clients saw on the wire, which checks the protocol's promises as it grows."""

from __future__ import annotations

import msgspec
from attrs import define, field, frozen

from arcp_trio.testing.frames import NUMBERED, TERMINAL, Frame, FrameError, check_frame, require
from arcp_trio.wire.errors import ResumeWindowExpired

_SHOWN_CHARACTERS = 1_000
"""How much of an offending frame an error message quotes."""


@frozen(eq=False)
class Subscription:
    """What a session saw of a job from one `job.subscribed` on."""

    subscribed: Frame
    frames: list[Frame] = field(factory=list[Frame])
    """Events and the terminal."""


@define(eq=False)
class _JobRecord:
    """One job as one session saw it."""

    accepted: Frame | None = None
    events: list[Frame] = field(factory=list[Frame])
    terminal: Frame | None = None
    calls: set[str] = field(factory=set[str])
    """Ids of what it has called and delegated, which a `tool_result` may be about."""
    delegations: set[str] = field(factory=set[str])
    children: list[_JobRecord] = field(factory=list["_JobRecord"])
    observed: bool = False
    """Subscribed to, and not known to be unsubscribed from."""
    subscriptions: list[Subscription] = field(factory=list[Subscription])

    def numbered(self, frame: Frame) -> None:
        """Note an event or the terminal: the session must have asked for it, and not seen it."""
        promised = self.accepted is not None or self.observed
        require(promised, f"{frame['type']} of a job that is not observed any more")
        require(self.terminal is None, f"{frame['type']} after the job's terminal")
        if self.subscriptions:
            self.subscriptions[-1].frames.append(frame)
        if frame["type"] in TERMINAL:
            self.end(frame)
        else:
            self.event(frame)

    def event(self, frame: Frame) -> None:
        """Note an event; of a job that is not only observed, all that came before is known."""
        self.events.append(frame)
        kind, body = frame["payload"]["kind"], frame["payload"]["body"]
        if kind == "tool_call":
            self.calls.add(body["call_id"])
        elif kind == "delegate":
            self.calls.add(body["delegate_id"])
            self.delegations.add(body["delegate_id"])
        elif kind == "tool_result" and self.accepted is not None:
            require(body["call_id"] in self.calls, "a tool_result of nothing that was called")

    def end(self, frame: Frame) -> None:
        """Note the terminal: no child outlives its parent (§10)."""
        open_ended = any(child.terminal is None for child in self.children)
        require(not open_ended, f"{frame['type']} of a job before its child's")
        self.terminal = frame


@define(eq=False)
class _SessionRecord:
    """One session, across all its connections."""

    id: str
    seen: dict[tuple[str, int | None], bytes] = field(factory=dict[tuple[str, "int | None"], bytes])
    """Every frame, by its id and number."""
    first: dict[str, int | None] = field(factory=dict[str, "int | None"])
    """The number under which each id came first."""
    numbered: dict[int, str] = field(factory=dict[int, str])
    """The id of the frame that has a number."""
    highest: int = 0
    tokens: set[str] = field(factory=set[str])
    jobs: dict[str, _JobRecord] = field(factory=dict[str, _JobRecord])

    def take(self, frame: Frame) -> None:
        """Note a frame that is no replay."""
        kind = frame["type"]
        if kind == "job.accepted":
            self._accepted(frame)
        elif kind == "job.subscribed":
            self._subscribed(frame)
        elif kind in NUMBERED:
            self._numbered(frame)
        elif kind == "job.cancelled":
            job = self.jobs.get(frame["job_id"])
            require(job is None or job.terminal is None, "job.cancelled after the job's terminal")

    def _accepted(self, frame: Frame) -> None:
        job = self.jobs.setdefault(frame["payload"]["job_id"], _JobRecord())
        if job.accepted is None:
            job.accepted = frame
            self._born(job, frame["payload"])
            return
        # §7.2: a submission repeated under its key gets the same acceptance, also after the
        # job's end. Only the request that it answers is another one.
        same = _without_request(frame) == _without_request(job.accepted)
        require(same, "a second, different job.accepted")

    def _born(self, job: _JobRecord, accepted: Frame) -> None:
        """§10: a child is accepted behind its parent's `delegate`, and not behind its end."""
        parent = self.jobs.get(accepted.get("parent_job_id", ""))
        if parent is None or parent.accepted is None:
            return
        announced = accepted.get("delegate_id") in parent.delegations
        require(announced, "a child that its parent did not delegate to")
        require(parent.terminal is None, "a child of a job that has ended")
        parent.children.append(job)

    def _subscribed(self, frame: Frame) -> None:
        job = self.jobs.setdefault(frame["payload"]["job_id"], _JobRecord())
        job.subscriptions.append(Subscription(frame))
        job.observed = True
        if job.accepted is None:
            # Subscribing again starts another stream, which may replay the job to its end.
            # Subscribing to one's own job does not: it is acknowledged, nothing comes twice.
            job.terminal = None

    def _numbered(self, frame: Frame) -> None:
        job = self.jobs.get(frame["job_id"])
        if job is None:
            raise FrameError(f"{frame['type']} of a job before its job.accepted")
        job.numbered(frame)

    def unsubscribed(self, job_id: str) -> None:
        """Note that nothing more may come of a job, unless the session submitted it."""
        if job_id in self.jobs:
            self.jobs[job_id].observed = False

    def may_repeat(self, frame: Frame) -> bool:
        """Whether an event may come under another number, too: subscribed to more than once."""
        job = self.jobs.get(frame.get("job_id", ""))
        return job is not None and len(job.subscriptions) + (job.accepted is not None) > 1


@define(eq=False)
class ConnectionRecord:
    """What arrives on one connection. `WireRecorder.connection` makes one."""

    _sessions: dict[str, _SessionRecord]
    _session: _SessionRecord | None = None
    _resume_after: int | None = None
    _next_seq: int = 1
    _ids: set[tuple[str, int | None]] = field(factory=set[tuple[str, "int | None"]])
    _parted: frozenset[str] = frozenset()
    """Jobs that the client has unsubscribed from here, and not subscribed to again."""
    _behind_parting: dict[str, frozenset[str]] = field(factory=dict[str, frozenset[str]])
    """The same, at the time of each request that can be answered."""
    _arcp: str | None = None
    _over: bool = False

    def resumed(self, last_event_seq: int) -> None:
        """Say that the client asks to resume: once welcomed, the numbers go on after this one."""
        self._resume_after = last_event_seq

    def sent(self, frame: Frame) -> None:
        """Say what the client asks for: what is answered to it tells where others stand."""
        payload = frame["payload"]
        job_id = payload.get("job_id")
        # Wherever it stands, in a hello or alone, it asks for the numbers after it.
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
        """Note the next frame, or raise an AssertionError that names it."""
        text = msgspec.json.encode(frame)
        try:
            check_frame(frame)
            self._follow(frame, msgspec.json.encode(_as_repeated(frame)))
        except FrameError as problem:
            shown = text.decode()[:_SHOWN_CHARACTERS]
            raise AssertionError(f"{problem}: {shown}") from None

    def _follow(self, frame: Frame, text: bytes) -> None:
        require(not self._over, "a frame after the end of the conversation")
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

    def _is_late(self, session: _SessionRecord, frame: Frame) -> bool:
        """Whether it begins nothing: it is read when the session has gone on elsewhere."""
        return frame["type"] == "job.subscribed" and self._next_seq <= session.highest

    def _end_subscriptions(self, session: _SessionRecord, frame: Frame) -> None:
        """An answer comes behind all that was still on its way of what was parted from before."""
        payload = frame["payload"]
        for job_id in self._behind_parting.get(payload.get("request_id"), ()):
            session.unsubscribed(job_id)
        if frame["type"] == "session.error" and payload["code"] == ResumeWindowExpired.code:
            session.unsubscribed(payload.get("job_id", ""))

    def _welcomed(self, frame: Frame) -> None:
        session_id, token = frame["session_id"], frame["payload"].get("resume_token")
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _SessionRecord(session_id)
            self._next_seq = 1
        else:
            # A second welcome on a connection is right only where a `session.resume` leaves the
            # fresh session for another one.
            require(session is not self._session, "a second session.welcome")
            require(self._resume_after is not None, "a session welcomed again without a resume")
            self._next_seq = (self._resume_after or 0) + 1
        require(token and token not in session.tokens, "the resume_token did not rotate")  # §6.3
        session.tokens.add(token)
        self._session, self._arcp = session, frame["arcp"]

    def _is_replay(self, session: _SessionRecord, frame: Frame, text: bytes) -> bool:
        """Check id and number, and tell whether the session has seen this frame before."""
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
    """Everything that clients of one runtime saw, checked frame by frame.

    Each connection feeds its own `connection()`, in the order of arrival. A session may go through
    several connections; what holds for a session holds across them.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, _SessionRecord] = {}

    def connection(self) -> ConnectionRecord:
        """Begin to record a connection."""
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
        """Return what each `job.subscribed` of a session for a job was followed by."""
        job = self._job(job_id, session_id)
        return [] if job is None else list(job.subscriptions)

    def _job(self, job_id: str, session_id: str | None) -> _JobRecord | None:
        sessions = self._sessions.values() if session_id is None else [self._sessions[session_id]]
        seen = [session.jobs[job_id] for session in sessions if job_id in session.jobs]
        if len(seen) > 1:
            raise ValueError(f"{job_id} was seen in {len(seen)} sessions: say which")
        return seen[0] if seen else None


def _without_request(accepted: Frame) -> Frame:
    payload = accepted["payload"]
    return {n: value for n, value in payload.items() if n not in {"request_id", "credentials"}}


def _as_repeated(frame: Frame) -> Frame:
    """The frame with what every replay of it repeats, byte for byte.

    Credentials are shown as they are at the time: with another value once they were rotated, and
    not at all when they are worth nothing.
    """
    payload = frame["payload"]
    if "credentials" in payload and frame["type"] == "job.accepted":
        return {**frame, "payload": {n: v for n, v in payload.items() if n != "credentials"}}
    if payload.get("kind") == "status" and payload["body"].get("phase") == "credential_rotated":
        body = {name: payload["body"][name] for name in ("phase", "id")}
        return {**frame, "payload": {**payload, "body": body}}
    return frame
