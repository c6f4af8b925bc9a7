"""What a program gets to see of a job as it runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import msgspec

from arcp_trio.wire.envelope import Envelope
from arcp_trio.wire.json import Json


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a job (§8.1)."""

    # There may be very many of them, and nothing else is made as fast.

    seq: int
    """Its number in this session."""
    job_id: str
    kind: str
    body: Json
    ts: str
    """When it was emitted; empty where the runtime does not say."""

    @classmethod
    def of(cls, frame: Envelope) -> Event:
        """Take it from its frame as it comes: kinds that are not known yet pass."""
        payload = frame.payload
        kind, ts = payload.get("kind"), payload.get("ts")
        return cls(
            seq=frame.event_seq or 0,
            job_id=frame.job_id or "",
            kind=kind if isinstance(kind, str) else "",
            body=payload.get("body"),
            ts=ts if isinstance(ts, str) else "",
        )


EventHandler: TypeAlias = Callable[[Event], Awaitable[None]]
