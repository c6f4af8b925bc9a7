"""Pings, and deciding that a peer is lost (§6.4)."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from arcp_trio.lateness import sleep_until

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
        self._not_before = -math.inf
        """No peer is lost before then: the loop was held, and could not hear it."""

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

        A write that makes no progress is a loss in any case. After the loop was held, the peer has
        one interval more.
        """
        next_ping = trio.current_time() + self._interval
        while True:
            silent_at = self._silent_at if negotiated else math.inf
            was_late = await sleep_until(min(next_ping, silent_at, self._stuck_at))
            now = trio.current_time()
            if was_late:
                self._not_before = now + self._interval
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
        stuck_at = math.inf if since is None else since + 2 * self._interval
        return max(stuck_at, self._not_before)

    @property
    def _silent_at(self) -> float:
        silent_at = self._heard_at + 2 * self._interval if self._listening else math.inf
        return max(silent_at, self._not_before)
