"""What a client knows, for comparison with what it is told later."""

from __future__ import annotations

import attrs

from arcp_trio.testing.frames import Frame
from tests.durability.story import Client

PROMISES = ("job.accepted", "job.cancelled")
"""Frames without a number that a resume repeats."""


@attrs.frozen
class Memory:
    """What a client knows when its runtime dies."""

    session_id: str
    token: str
    floor: int
    frames: list[Frame]
    keys: dict[str, Frame]
    keyed: dict[str, str]
    """Ids of jobs by their keys."""

    @property
    def jobs(self) -> set[str]:
        """The ids of the jobs that it was told of."""
        return {f["payload"]["job_id"] for f in self.frames if f["type"] == "job.accepted"}

    @property
    def promised(self) -> set[str]:
        """Ids of the frames that it was sent after the last one that it acknowledged."""
        found: set[str] = set()
        answered: set[tuple[str, str]] = set()
        highest = 0
        for frame in self.frames:
            highest = max(highest, frame.get("event_seq", 0))
            if "event_seq" in frame:
                promised = frame["event_seq"] > self.floor
            else:
                # An answer that is repeated is not logged again.
                answer = frame["type"], frame["payload"].get("job_id", "")
                promised = answer not in answered and answer[0] in PROMISES
                promised = promised and highest >= self.floor
                answered.add(answer)
            if promised:
                found.add(frame["id"])
        return found


def remember(client: Client) -> Memory:
    """Return what the client knows now."""
    return Memory(
        client.session_id,
        client.token,
        client.floor,
        list(client.frames),
        dict(client.keys),
        dict(client.keyed),
    )
