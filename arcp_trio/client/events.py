"""The events of jobs, as a program takes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

import msgspec
import trio

from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.json import Json, object_in

CHECKPOINT_EVENTS: Final = 64
"""Other tasks run at least once in this many events that a task takes in a row."""


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An event of a job (§8.1).

    `kind` says what it is, such as `log` or `progress`, and `body` has the rest (§8.2). `seq` is
    its number in the session, and `ts` the time at which the job emitted it.
    """

    # A msgspec struct, because a client makes very many events and no other class is made as fast.

    seq: int
    """The event's number in this session."""
    job_id: str
    kind: str
    body: Json
    ts: str
    """When the job emitted the event; empty where the runtime does not say."""


class _EventPayload(msgspec.Struct, gc=False):
    kind: str
    body: Json = None
    ts: str = ""


class _EventFrame(msgspec.Struct, gc=False):
    """A `job.event` as runtimes write it: of all else in the frame, a client needs nothing."""

    arcp: Literal["1.1", "1"]
    type: Literal["job.event"]
    event_seq: int
    job_id: str
    payload: _EventPayload


_decode: Final = msgspec.json.Decoder(_EventFrame).decode
_MARK: Final = '"type":"job.event"'
_MARK_CHARACTERS: Final = 512
"""The mark stands within these, after ids."""


def decode_event(text: str | bytes) -> Event | None:
    """Return the event in a frame; None if it is another frame, or an event to be looked at closer.

    Most frames are events, and this takes a third of the time that decoding an envelope takes.
    """
    if isinstance(text, bytes) or text.find(_MARK, 0, _MARK_CHARACTERS) < 0:
        return None
    try:
        frame = _decode(text)
    except (UnicodeError, RecursionError, msgspec.DecodeError):
        return None
    payload = frame.payload
    return Event(
        seq=frame.event_seq,
        job_id=frame.job_id,
        kind=payload.kind,
        body=payload.body,
        ts=payload.ts,
    )


def read_event(frame: Envelope) -> Event:
    """Make an event from its frame; any kind and any body is taken as it comes (§8.2)."""
    payload = frame.payload
    kind, ts = payload.get("kind"), payload.get("ts")
    return Event(
        seq=frame.event_seq or 0,
        job_id=frame.job_id or "",
        kind=kind if isinstance(kind, str) else "",
        body=payload.get("body"),
        ts=ts if isinstance(ts, str) else "",
    )


def is_notice(event: Event) -> bool:
    """Return whether an event tells of this session alone: that the client is behind (§6.5).

    The job has not emitted it, and it does not come again with the job's history.
    """
    return event.kind == "status" and object_in(event.body).get("phase") == "back_pressure"


EventHandler: TypeAlias = Callable[[Event], Awaitable[None]]


class EventCheckpoints:
    """Checkpoints between the events that one task takes.

    Each is a point of cancellation, but only one in `CHECKPOINT_EVENTS` lets other tasks run: a
    round of Trio's scheduler costs more than taking an event does.
    """

    def __init__(self) -> None:
        self._left = CHECKPOINT_EVENTS

    def next(self) -> Awaitable[None]:
        """Return the checkpoint to pass before or after an event."""
        self._left -= 1
        if self._left:
            return trio.lowlevel.checkpoint_if_cancelled()  # noqa: ASYNC105 - the caller awaits it
        self._left = CHECKPOINT_EVENTS
        return trio.lowlevel.checkpoint()  # noqa: ASYNC105 - the same
