"""The record of one session and of its jobs, which checks each frame that is added."""

from __future__ import annotations

from attrs import define, field, frozen

from arcp_trio.testing.frames import NUMBERED, TERMINAL, Frame, FrameError, require


@frozen(eq=False)
class Subscription:
    """The frames of a job that a session received after one `job.subscribed`."""

    subscribed: Frame
    frames: list[Frame] = field(factory=list[Frame])
    """The events, and the terminal if it came."""


@define(eq=False)
class JobRecord:
    """A job, as far as one session saw it."""

    accepted: Frame | None = None
    events: list[Frame] = field(factory=list[Frame])
    terminal: Frame | None = None
    calls: set[str] = field(factory=set[str])
    """The ids of its tool calls and delegations, to which a `tool_result` may refer."""
    delegations: set[str] = field(factory=set[str])
    children: list[JobRecord] = field(factory=list["JobRecord"])
    repeated: bool = False
    """The job was accepted again after its end (§7.2)."""
    terminal_due: bool = False
    """Since it was accepted again, its terminal has not come once more."""
    observed: bool = False
    """Whether the session subscribed to the job and is not known to have unsubscribed."""
    subscriptions: list[Subscription] = field(factory=list[Subscription])
    ids: set[str] = field(factory=set[str])
    """The ids of its events."""
    replayed: bool = False
    """The session submitted the job, and is sent it again."""

    def numbered(self, frame: Frame) -> None:
        """Add an event or the terminal, of a job that the session submitted or observes."""
        promised = self.accepted is not None or self.observed
        require(promised, f"{frame['type']} of a job that is no longer observed")
        if self.terminal is not None and self.terminal_due:
            require(
                frame["id"] == self.terminal["id"], f"{frame['type']} is not the job's terminal"
            )
            self.terminal_due = False
            return
        ended = self.terminal is not None and not self.replayed
        require(not ended, f"{frame['type']} after the job's terminal")
        if self.subscriptions:
            self.subscriptions[-1].frames.append(frame)
        if self.replayed and (frame["id"] in self.ids or self.terminal is not None):
            self._again(frame)
        elif frame["type"] in TERMINAL:
            self.end(frame)
        else:
            self.event(frame)

    def _again(self, frame: Frame) -> None:
        """Check a frame that the session has seen with another number."""
        if self.terminal is None:
            return
        known = frame["id"] in self.ids or frame["id"] == self.terminal["id"]
        require(known, f"{frame['type']} after the job's terminal")
        self.replayed = frame["id"] != self.terminal["id"]

    def event(self, frame: Frame) -> None:
        """Add an event; a submitter has seen all earlier ones, so a result must match a call."""
        self.events.append(frame)
        self.ids.add(frame["id"])
        kind, body = frame["payload"]["kind"], frame["payload"]["body"]
        if kind == "tool_call":
            self.calls.add(body["call_id"])
        elif kind == "delegate":
            self.calls.add(body["delegate_id"])
            self.delegations.add(body["delegate_id"])
        elif kind == "tool_result" and self.accepted is not None:
            require(body["call_id"] in self.calls, "a tool_result without its tool_call")

    def end(self, frame: Frame) -> None:
        """Add the terminal; no child outlives its parent (§10)."""
        open_ended = any(child.terminal is None for child in self.children)
        require(not open_ended, f"{frame['type']} of a job before its child's")
        self.terminal = frame


@define(eq=False)
class SessionRecord:
    """One session, across all its connections."""

    id: str
    seen: dict[tuple[str, int | None], bytes] = field(factory=dict[tuple[str, "int | None"], bytes])
    """Each frame that the session received, by its id and number."""
    first: dict[str, int | None] = field(factory=dict[str, "int | None"])
    """The number with which each id came first."""
    numbered: dict[int, str] = field(factory=dict[int, str])
    """The ids of the numbered frames, by number."""
    highest: int = 0
    tokens: set[str] = field(factory=set[str])
    jobs: dict[str, JobRecord] = field(factory=dict[str, JobRecord])

    def take(self, frame: Frame) -> None:
        """Add a frame that is not a replay."""
        kind = frame["type"]
        if kind == "job.accepted":
            self._accepted(frame)
        elif kind == "job.subscribed":
            self._subscribed(frame)
        elif kind in NUMBERED:
            self._numbered(frame)
        elif kind in ("job.cancelled", "x-vendor.arcp-trio.stopped"):
            job = self.jobs.get(frame["job_id"])
            require(job is None or job.terminal is None, f"{kind} after the job's terminal")

    def _accepted(self, frame: Frame) -> None:
        job = self.jobs.setdefault(frame["payload"]["job_id"], JobRecord())
        if job.accepted is None:
            job.accepted = frame
            self._born(job, frame["payload"])
            return
        # §7.2: a submission repeated under its key gets the same acceptance, also after the
        # job's end. Only the id of the request differs.
        same = _without_request(frame) == _without_request(job.accepted)
        require(same, "a second, different job.accepted")
        if job.terminal is not None:
            job.repeated = job.terminal_due = True

    def _born(self, job: JobRecord, accepted: Frame) -> None:
        """Check that a child is accepted after its parent's `delegate` and before its end (§10)."""
        parent = self.jobs.get(accepted.get("parent_job_id", ""))
        if parent is None or parent.accepted is None:
            return
        announced = accepted.get("delegate_id") in parent.delegations
        require(announced, "a child without a delegate event of its parent")
        require(parent.terminal is None, "a child of a job that has ended")
        parent.children.append(job)

    def _subscribed(self, frame: Frame) -> None:
        job = self.jobs.setdefault(frame["payload"]["job_id"], JobRecord())
        job.subscriptions.append(Subscription(frame))
        job.observed = True
        if job.accepted is None:
            job.terminal = None  # subscribing again may replay the job to its end
        elif frame["payload"].get("replayed"):
            job.replayed = True

    def _numbered(self, frame: Frame) -> None:
        job = self.jobs.get(frame["job_id"])
        if job is None:
            raise FrameError(f"{frame['type']} of a job before its job.accepted")
        job.numbered(frame)

    def unsubscribed(self, job_id: str) -> None:
        """Record that the session no longer observes a job; more of it may come to a submitter."""
        if job_id in self.jobs:
            self.jobs[job_id].observed = False

    def may_repeat(self, frame: Frame) -> bool:
        """Return whether a frame may come again with another number.

        Events of a job with two streams come twice, and so does the terminal of a job that was
        accepted again.
        """
        job = self.jobs.get(frame.get("job_id", ""))
        if job is None:
            return False
        return job.repeated or len(job.subscriptions) + (job.accepted is not None) > 1


def _without_request(accepted: Frame) -> Frame:
    payload = accepted["payload"]
    return {n: value for n, value in payload.items() if n not in {"request_id", "credentials"}}
