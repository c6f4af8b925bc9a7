"""Pings, and deciding that a peer is lost (§6.4)."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from arcp_trio.lateness import HeldTime, Patience

if TYPE_CHECKING:
    from arcp_trio.transport.base import Transport


class Loss(enum.Enum):
    """How a peer was lost."""

    SILENT = "nothing was heard for two heartbeat intervals"
    STUCK = "nothing could be written for two heartbeat intervals"


class Heartbeat:
    """The heartbeat of one connection; a peer counts as silent only while the reader listens."""

    def __init__(self, interval: float, transport: Transport) -> None:
        self._interval = interval
        self._transport = transport
        self._heard_at = trio.current_time()
        self._listening = True
        self._held = HeldTime()
        self._silence = Patience(self._held, interval)
        self._stuckness = Patience(self._held, interval)

    def heard(self) -> None:
        """Note that a frame came."""
        self._heard_at = trio.current_time()

    @contextmanager
    def not_listening(self) -> Generator[None]:
        """Do not count silence while the reader is waiting for something else."""
        self._listening = False
        yield
        self._listening = True
        self.heard()

    async def lost(self, *, negotiated: bool, ping: Callable[[], None]) -> Loss:
        """Ping every interval, if that was negotiated; return once the peer is lost.

        A write that makes no progress is a loss in any case.
        """
        next_ping = trio.current_time() + self._interval
        while True:
            silent_at = self._silent_at if negotiated else math.inf
            await self._held.sleep_until(min(next_ping, silent_at, self._stuck_at))
            now = trio.current_time()
            if self._stuck_at <= now:
                return Loss.STUCK
            if negotiated and self._silent_at <= now:
                return Loss.SILENT
            if next_ping <= now:
                next_ping = now + self._interval
                if negotiated:
                    ping()

    @property
    def _stuck_at(self) -> float:
        since = self._transport.writing_since
        return math.inf if since is None else self._stuckness.ends(since)

    @property
    def _silent_at(self) -> float:
        return self._silence.ends(self._heard_at) if self._listening else math.inf
