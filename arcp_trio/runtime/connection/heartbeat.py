"""Pings, and deciding that a peer is lost (§6.4)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

from arcp_trio.lateness import HeldTime, Patience

if TYPE_CHECKING:
    from arcp_trio.transport.base import Transport


class Due(enum.Enum):
    """Why a heartbeat ends, and its connection with it."""

    SILENT = "nothing was heard for two heartbeat intervals"
    STUCK = "nothing could be written for two heartbeat intervals"
    TOKEN_OVER = "the token's time is over"  # noqa: S105 - it opens nothing


class Heartbeat:
    """The heartbeat of one connection: its task sleeps until something is due.

    A peer counts as silent only while the reader listens.
    """

    __slots__ = (
        *("_heard_at", "_held", "_interval", "_listening", "_ping", "_silence", "_stuckness"),
        *("_token_ends", "_transport"),
    )

    def __init__(
        self,
        transport: Transport,
        interval: float,
        token_ends: float,
        ping: Callable[[], None] | None,
    ) -> None:
        """Have `ping` called every interval.

        A write that makes no progress is a loss, and silence is one if there is a `ping`.
        """
        self._transport = transport
        self._interval = interval
        self._token_ends = token_ends
        self._ping = ping
        self._held = HeldTime()
        self._silence = Patience(self._held, interval)
        self._stuckness = Patience(self._held, interval)
        self._heard_at = trio.current_time()
        self._listening = True

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

    async def run(self) -> Due:
        """Beat until the connection has to end; return why."""
        next_ping = trio.current_time() + self._interval
        while True:
            stuck_at = self._stuckness.ends(self._transport.writing_since)
            silent_at = self._silence.ends(self._silent_since)
            now = trio.current_time()
            if stuck_at <= now:
                return Due.STUCK
            if silent_at <= now:
                return Due.SILENT
            if self._token_ends <= now:
                return Due.TOKEN_OVER
            if next_ping <= now:
                next_ping = now + self._interval
                if self._ping is not None:
                    self._ping()
            # It looks at each interval, as nobody says when a write begins.
            await self._held.sleep_until(min(next_ping, silent_at, stuck_at, self._token_ends))

    @property
    def _silent_since(self) -> float | None:
        return self._heard_at if self._listening and self._ping is not None else None
