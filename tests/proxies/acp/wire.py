"""A recorder of what clients are sent, which also checks that tool calls come in pairs."""

from __future__ import annotations

from collections import defaultdict

from arcp_trio.testing import WireRecorder
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.testing.recorder import ConnectionRecord
from arcp_trio.testing.session_record import SessionRecord


class PairingRecorder(WireRecorder):
    """Checks of each job: a result for each call, after it, once, and before the terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[tuple[str, str], set[str]] = defaultdict(set)
        """The ids of the calls that have no result yet, by session and job."""
        self._known: set[tuple[str, str]] = set()
        """The frames that each session has seen, which a resume repeats."""
        self._used: dict[tuple[str, str], set[str]] = defaultdict(set)

    def connection(self) -> ConnectionRecord:
        """Return the record of a new connection."""
        return _PairingConnection(self, self._sessions)

    def pair(self, frame: Frame) -> None:
        """Check one frame."""
        job_id, session_id = frame.get("job_id"), frame.get("session_id", "")
        if job_id is None or (session_id, frame["id"]) in self._known:
            return
        self._known.add((session_id, frame["id"]))
        calls, used = self._open[session_id, job_id], self._used[session_id, job_id]
        if frame["type"] in TERMINAL:
            assert not calls, f"calls without a result at the end of {job_id}: {calls}"
        if frame["type"] == "job.event":
            kind, body = frame["payload"]["kind"], frame["payload"]["body"]
            if kind == "tool_call":
                assert body["call_id"] not in used, f"a second call {body['call_id']}"
                used.add(body["call_id"])
                calls.add(body["call_id"])
            elif kind == "tool_result":
                assert body["call_id"] in calls, f"a result for no open call: {body['call_id']}"
                calls.remove(body["call_id"])


class _PairingConnection(ConnectionRecord):
    """The record of one connection."""

    def __init__(self, recorder: PairingRecorder, sessions: dict[str, SessionRecord]) -> None:
        super().__init__(sessions)
        self._recorder = recorder

    def saw(self, frame: Frame) -> None:
        """Check and add the runtime's next frame."""
        super().saw(frame)
        self._recorder.pair(frame)
