"""A runtime's side of the wire, written by hand, for tests of the recorder."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from arcp_trio.testing import WireRecorder

Frame = dict[str, Any]

TIME = "2026-01-01T00:00:00.000Z"
ERROR: Frame = {"code": "INTERNAL_ERROR", "message": "it broke", "retryable": True}


class Wire:
    """Makes correct frames, and passes frames to a connection of a recorder."""

    def __init__(self, recorder: WireRecorder | None = None, session: str = "sess_1") -> None:
        self.recorder = recorder or WireRecorder()
        self.session = session
        self.record = self.recorder.connection()
        self.ids = iter(range(10_000))
        self.token: Iterator[str] = (f"rt_{n}" for n in range(100))

    def reconnect(self, last_event_seq: int) -> None:
        """Continue the session on another connection."""
        self.record = self.recorder.connection()
        self.record.resumed(last_event_seq)
        self.see(self.welcome())

    def frame(self, kind: str, payload: Frame, **envelope: Any) -> Frame:
        """Return a frame of this session with a new id."""
        return {
            "arcp": "1.1",
            "id": f"{self.session}-{next(self.ids)}",
            "type": kind,
            "session_id": self.session,
            **envelope,
            "payload": payload,
        }

    def welcome(self) -> Frame:
        """Return a welcome with the next token."""
        payload = {"resume_token": next(self.token), "accepted_at": TIME}
        return self.frame("session.welcome", payload)

    def accepted(self, job: str = "job_1", **payload: Any) -> Frame:
        """Return the acceptance of a job."""
        payload = {"job_id": job, "agent": "a@1", "request_id": "r1", "accepted_at": TIME} | payload
        return self.frame("job.accepted", payload, job_id=job)

    def event(self, number: int, job: str = "job_1", kind: str = "log", **body: Any) -> Frame:
        """Return an event with this number."""
        payload = {"kind": kind, "ts": TIME, "body": body}
        return self.frame("job.event", payload, job_id=job, event_seq=number)

    def result(self, number: int, job: str = "job_1", **payload: Any) -> Frame:
        """Return the terminal of a job that succeeded."""
        payload = {"final_status": "success", "result": None, "completed_at": TIME} | payload
        return self.frame("job.result", payload, job_id=job, event_seq=number)

    def error(self, number: int, job: str = "job_1", **payload: Any) -> Frame:
        """Return the terminal of a job that failed."""
        payload = {"final_status": "error", **ERROR, "completed_at": TIME} | payload
        return self.frame("job.error", payload, job_id=job, event_seq=number)

    def subscribed(self, job: str = "job_1", *, replayed: bool = False) -> Frame:
        """Return the answer to a subscription."""
        payload = {"job_id": job, "request_id": "r2", "parent_job_id": None, "replayed": replayed}
        return self.frame("job.subscribed", payload, job_id=job)

    def see(self, *frames: Frame) -> None:
        """Pass these frames to the recorder."""
        for frame in frames:
            self.record.saw(copy.deepcopy(frame))

    def refuses(self, frame: Frame, why: str) -> None:
        """Assert that the recorder refuses a frame for this reason, and names its id."""
        with pytest.raises(AssertionError, match=why) as caught:
            self.see(frame)
        assert json.dumps(frame.get("id"), separators=(",", ":")) in str(caught.value)
