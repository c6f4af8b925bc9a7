"""The events of jobs, as a program takes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
import trio

from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.json import Json

CHECKPOINT_EVENTS: Final = 32
"""Other tasks run at least once in this many events that a task takes in a row."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
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


EventHandler: TypeAlias = Callable[[Event], Awaitable[None]]


class EventCheckpoints:
    """Checkpoints between the events that one task takes.

    Each is a point of cancellation, but only one in `CHECKPOINT_EVENTS` lets other tasks run: a
    round of Trio's scheduler costs more than taking an event does.
    """

    def __init__(self) -> None:
        self._left = CHECKPOINT_EVENTS

    async def checkpoint(self) -> None:
        """Pass the checkpoint before or after an event."""
        self._left -= 1
        if self._left > 0:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            self._left = CHECKPOINT_EVENTS
            await trio.lowlevel.checkpoint()
