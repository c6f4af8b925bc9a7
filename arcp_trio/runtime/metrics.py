"""What the runtime counts; `prometheus.py` has the gauges, and the public names of all metrics."""

from __future__ import annotations

import enum
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import attrs

from arcp_trio.runtime.limits import Limits
from arcp_trio.store.records import Status
from arcp_trio.store.shared import EngineCall
from arcp_trio.wire.errors import CODES, ArcpError

ENDS: Final[Sequence[str]] = (Status.SUCCESS, Status.ERROR, Status.CANCELLED, Status.TIMED_OUT)
"""How a job can end (§7.3)."""

COMMIT_SECONDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
"""Bounds of the histogram, from a fast disk's commit to a store in trouble."""

WAKES: Final[Sequence[str]] = ("notify", "poll")
"""Why a node looks at the journals of others: it was woken, or it was time."""

_E = TypeVar("_E", bound=ArcpError)

_WORD: Final = re.compile(r"[a-z0-9_]{1,64}")


class Failure(enum.StrEnum):
    """Why a connection failed, where the runtime itself notices."""

    FAULT = "fault"
    """The runtime's own code raised."""
    HEARTBEAT_LOST = "heartbeat_lost"
    HANDSHAKE_SECONDS = "handshake_seconds"
    """No session was opened in time."""
    FRAME_BYTES_IN = "frame_bytes_in"
    MALFORMED_FRAMES = "malformed_frames"


class Move(enum.StrEnum):
    """How a session has come to a node."""

    CLAIMED = "claimed"
    """No node had it awake."""
    RELEASED = "released"
    """The node that had it let go of it when it was asked."""
    STOLEN = "stolen"
    """The node that had it has not let go of it."""


OTHER: Final = "other"
"""Counts reasons that have no counter of their own."""


class Histogram:
    """Counts observations by bucket, and sums them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """By bucket, not cumulative; the last is for values beyond the bounds."""
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@attrs.define(eq=False)
class Metrics:
    """Counters of one runtime. Code that counts adds to an attribute; nothing waits or grows."""

    events: int = 0
    """Events that jobs have emitted."""
    event_bytes: int = 0
    """Bytes of these events, encoded."""
    evicted_events: int = 0
    """Events given up to keep to a bound, read or not."""
    loop_stalls: int = 0
    """How often the loop was held for more than a moment."""
    finished: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(ENDS, 0))
    """Jobs by how they ended."""
    begun_again: int = 0
    """Calls of durable jobs' agents after a restart."""
    sessions_moved: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(map(str, Move), 0))
    """Sessions that have come to this node, by how."""
    refused_writes: int = 0
    """Groups of writes in which a session or a job was refused, as it is another node's."""
    adoptions: int = 0
    """How often this node has taken over from a dead one."""
    nodes: Mapping[str, int] = attrs.field(factory=dict[str, int])
    """Nodes by state, as this one has seen them last."""
    clock_offset: float = 0.0
    """Seconds that the clock of the shared store was seen to be ahead of this machine's."""
    refusals: dict[str, int] = attrs.field(
        factory=lambda: dict.fromkeys(sorted([*CODES, OTHER]), 0)
    )
    """Refused requests of clients and agents, by limit or code."""
    wakes: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(WAKES, 0))
    """How often this node found new entries of jobs elsewhere, by how it came to look."""
    connection_failures: dict[str, int] = attrs.field(
        factory=lambda: dict.fromkeys(map(str, Failure), 0)
    )
    commits: Histogram = attrs.field(factory=lambda: Histogram(COMMIT_SECONDS))
    """Seconds from when the writer takes a group until it is stored."""
    engine: dict[str, Histogram] = attrs.field(
        factory=lambda: {str(call): Histogram(COMMIT_SECONDS) for call in EngineCall}
    )
    """Seconds until the engine of a shared store has answered, by what it was called for."""
    commands: Histogram = attrs.field(factory=lambda: Histogram(COMMIT_SECONDS))
    """Seconds from when another node is asked to do something until its answer is here."""

    def engine_called(self, call: EngineCall, seconds: float) -> None:
        """Count a call of the engine."""
        self.engine[call].observe(seconds)

    def refused(self, error: _E) -> _E:
        """Count a refusal that a client or an agent is about to get, and return its error."""
        limit = error.details.get("limit")
        if not isinstance(limit, str) or limit not in _LIMITS:
            limit = error.code if error.code in CODES else OTHER
        self.refusals[limit] = self.refusals.get(limit, 0) + 1
        return error

    def connection_failed(self, reason: str) -> None:
        """Count a connection that failed; `reason` is a word of the caller's."""
        word = reason if _WORD.fullmatch(reason) else OTHER
        self.connection_failures[word] = self.connection_failures.get(word, 0) + 1


_LIMITS: Final = frozenset(field.name for field in attrs.fields(Limits))
