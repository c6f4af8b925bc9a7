"""Schedules as data: what clients do, and what the agents of their jobs do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import attrs
from hypothesis import strategies as st

if TYPE_CHECKING:
    from arcp_trio.testing.frames import Frame

SLOTS = 2
"""How many clients there are."""


@attrs.frozen
class Burst:
    """A number of events in a row, then a pause."""

    events: int
    pause: float
    progress: bool
    """Whether every other event is a `progress`."""


@attrs.frozen
class Script:
    """What the agent of a job does."""

    bursts: tuple[Burst, ...]
    fails: bool
    max_runtime: int | None
    grace: float
    """How many events the agent emits after it was cancelled."""


class Emitted(NamedTuple):
    """An event as its agent emitted it."""

    tag: int
    """The place of the job's script among all scripts."""
    place: int
    progress: bool


def emitted_by(tag: int, payload: Frame) -> Emitted | None:
    """Return what an agent emitted; None if the event is a back-pressure notice."""
    kind, body = payload["kind"], payload["body"]
    if kind == "status":
        return None
    progress = kind == "progress"
    return Emitted(tag, int(body["current" if progress else "message"]), progress)


@attrs.frozen
class Submit:
    """Submit a job."""

    slot: int
    script: Script


@attrs.frozen
class Read:
    """Read at most this many frames, each within the patience."""

    slot: int
    frames: int
    patience: float


@attrs.frozen
class Pause:
    """Do nothing for some time."""

    seconds: float


@attrs.frozen
class Yield:
    """Let all other tasks take this many turns."""

    times: int


@attrs.frozen
class Drop:
    """Drop the connection without a farewell, perhaps with the last frames unsent."""

    slot: int
    losing: bool


@attrs.frozen
class Resume:
    """Resume the session; while connected, this takes it over."""

    slot: int
    back: int
    """How many numbers before the last one seen, unless they were acknowledged."""
    token_before: bool
    """Whether to use the token before the last one, where that is still good."""
    short: bool
    """Whether to resume by `session.resume` rather than by a hello."""
    unheard: bool
    """Whether to leave the welcome unread, so that the next resume has to use the same token."""


@attrs.frozen
class Ack:
    """Acknowledge what was seen, but for the last few numbers."""

    slot: int
    back: int


@attrs.frozen
class Cancel:
    """Cancel one of the client's jobs."""

    slot: int
    job: int


@attrs.frozen
class Close:
    """Send `session.close` and leave the connection."""

    slot: int


@attrs.frozen
class Outlast:
    """Stay away for longer than the window."""

    slot: int


@attrs.frozen
class Subscribe:
    """Subscribe to any job, perhaps one of the client's own or one observed already."""

    slot: int
    job: int
    history: bool
    back: int
    """How many of the numbers that the owner has seen are to be replayed, with history."""


@attrs.frozen
class Unsubscribe:
    """Unsubscribe from any job."""

    slot: int
    job: int


Watching = Subscribe | Unsubscribe
ClientStep = Submit | Read | Drop | Resume | Ack | Cancel | Close | Outlast | Watching
Step = ClientStep | Pause | Yield


@attrs.frozen
class Bounds:
    """Limits so small that every path is taken."""

    outbox_items: int
    inbox_items: int
    tail_frames: int
    tail_bytes: int
    line_frames: int
    """How many unread frames a connection holds."""


@attrs.frozen
class Program:
    """A whole schedule."""

    bounds: Bounds
    features: tuple[tuple[str, ...], ...]
    """What each client negotiates."""
    steps: tuple[Step, ...]


_slots = st.integers(0, SLOTS - 1)

_bursts = st.builds(
    Burst,
    events=st.integers(0, 12),
    pause=st.sampled_from((0.0, 0.01, 0.5, 2.0)),
    progress=st.booleans(),
)
_submits = st.builds(
    Submit,
    _slots,
    st.builds(
        Script,
        bursts=st.lists(_bursts, max_size=4).map(tuple),
        fails=st.booleans(),
        max_runtime=st.sampled_from((None, None, 1)),
        grace=st.sampled_from((0.0, 0.0, 0.5)),
    ),
)
_reads = st.builds(Read, _slots, st.integers(1, 20), st.sampled_from((0.0, 0.01, 1.0)))
_pauses = st.builds(Pause, st.sampled_from((0.01, 0.5, 3.0, 12.0)))
_yields = st.builds(Yield, st.integers(1, 12))
_resumes = st.builds(
    Resume,
    _slots,
    back=st.sampled_from((0, 0, 1, 5, 1000)),
    token_before=st.booleans(),
    short=st.booleans(),
    unheard=st.sampled_from((False, False, True)),
)
_subscribes = st.builds(
    Subscribe,
    _slots,
    job=st.integers(0, 3),
    history=st.booleans(),
    back=st.sampled_from((1000, 0, 1, 4)),
)
_unsubscribes = st.builds(Unsubscribe, _slots, job=st.integers(0, 3))

_anything: st.SearchStrategy[Step] = st.one_of(
    _submits,
    _reads,
    _pauses,
    _yields,
    _resumes,
    st.builds(Drop, _slots, losing=st.booleans()),
    st.builds(Ack, _slots, back=st.sampled_from((0, 0, 3))),
    st.builds(Cancel, _slots, job=st.integers(0, 3)),
    st.builds(Close, _slots),
    st.builds(Outlast, _slots),
    _subscribes,
    _unsubscribes,
)
_whole_reads = st.builds(Read, _slots, st.just(20), st.just(1.0))
_observing: st.SearchStrategy[Step] = st.one_of(
    _submits, _whole_reads, _yields, _pauses, _subscribes, _subscribes, _unsubscribes, _resumes
)
_submits_and_slow_reads: st.SearchStrategy[Step] = st.one_of(_submits, _reads, _pauses, _yields)

_bounds = st.builds(
    Bounds,
    outbox_items=st.sampled_from((1, 4, 1024)),
    inbox_items=st.sampled_from((1, 256)),
    tail_frames=st.sampled_from((1, 8, 10_000)),
    tail_bytes=st.sampled_from((1, 2_000, 1 << 24)),
    line_frames=st.sampled_from((1, 6, 1000)),
)
_WITHOUT_PROGRESS = ("ack", "agent_versions", "subscribe")
_WITH_PROGRESS = (*_WITHOUT_PROGRESS, "progress")
_features = st.sampled_from(
    (_WITH_PROGRESS, (*_WITH_PROGRESS, "heartbeat"), _WITHOUT_PROGRESS),
)

programs = st.builds(
    Program,
    bounds=_bounds,
    features=st.tuples(*[_features] * SLOTS),
    steps=st.lists(_anything, min_size=3, max_size=40).map(tuple),
)
"""Any schedule."""

observations = st.builds(
    Program,
    bounds=_bounds,
    features=st.tuples(*[_features] * SLOTS),
    steps=st.lists(_observing, min_size=8, max_size=40).map(tuple),
)
"""Schedules in which clients observe each other's jobs and their own."""

overflows = st.builds(
    Program,
    bounds=st.builds(
        Bounds,
        outbox_items=st.integers(1, 4),
        inbox_items=st.just(256),
        tail_frames=st.integers(1, 8),
        tail_bytes=st.just(1 << 24),
        line_frames=st.integers(1, 8),
    ),
    features=st.just((_WITH_PROGRESS, _WITHOUT_PROGRESS)),
    steps=st.lists(_submits_and_slow_reads, min_size=3, max_size=25).map(tuple),
)
"""Schedules of concurrent jobs and slow clients, one of them without `progress`."""
