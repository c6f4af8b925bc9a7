"""Pings, and deciding that a peer is lost (§6.4)."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.lateness import HeldTime, Patience
from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from types import TracebackType

    from arcp_trio.transport.base import Transport

_SPARE: Final = 1_000
"""How many times to look at heartbeats that have ended may be kept, besides twice as many as go
on."""


class Loss(enum.Enum):
    """How a peer was lost."""

    SILENT = "nothing was heard for two heartbeat intervals"
    STUCK = "nothing could be written for two heartbeat intervals"


class Heartbeats:
    """Looks after the heartbeats of all connections, in one task: each mostly waits."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.held = HeldTime()
        self._beating: dict[int, Heartbeat] = {}
        self._numbers = count()
        self._due: list[tuple[float, int]] = []
        """A heap of when to look at which heartbeat, if that still beats."""
        self._begun = Wake()

    def add(self, heartbeat: Heartbeat) -> int:
        """Look after a heartbeat from now on; return its number."""
        number = next(self._numbers)
        self._beating[number] = heartbeat
        self._look_at(trio.current_time() + self.interval, number)
        self._begun.set()
        return number

    def remove(self, number: int) -> None:
        """Look after this heartbeat no more."""
        del self._beating[number]
        if len(self._due) > 2 * len(self._beating) + _SPARE:
            self._due = [each for each in self._due if each[1] in self._beating]
            heapq.heapify(self._due)

    def _look_at(self, due: float, number: int) -> None:
        heapq.heappush(self._due, (due, number))

    async def run(self) -> None:
        """Look after them until cancelled."""
        while True:
            while not self._due:
                await self._begun.wait()
            # What is added during this sleep is due after it: all wait for one interval at most.
            await self.held.sleep_until(self._due[0][0])
            now = trio.current_time()
            while self._due and self._due[0][0] <= now:
                _, number = heapq.heappop(self._due)
                heartbeat = self._beating.get(number)
                if heartbeat is not None and (due := heartbeat.look(now)) is not None:
                    self._look_at(due, number)


class Heartbeat:
    """The heartbeat of one connection, during a `with` block.

    A peer counts as silent only while the reader listens.
    """

    def __init__(
        self,
        heartbeats: Heartbeats,
        transport: Transport,
        *,
        ping: Callable[[], None] | None,
        lost: Callable[[Loss], None],
    ) -> None:
        """Have `ping` called every interval, and `lost` if the peer is lost; neither may raise.

        A write that makes no progress is a loss, and silence is one if there is a `ping`.
        """
        self._heartbeats = heartbeats
        self._transport = transport
        self._ping = ping
        self._lost = lost
        self._silence = Patience(heartbeats.held, heartbeats.interval)
        self._stuckness = Patience(heartbeats.held, heartbeats.interval)
        self._heard_at = trio.current_time()
        self._next_ping = self._heard_at + heartbeats.interval
        self._listening = True

    def __enter__(self) -> None:
        self._number = self._heartbeats.add(self)

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._heartbeats.remove(self._number)

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

    def look(self, now: float) -> float | None:
        """Ping if it is time to; return when to look again, None once the peer is lost."""
        stuck_at = self._stuckness.ends(self._transport.writing_since)
        silent_at = self._silence.ends(self._silent_since)
        if stuck_at <= now or silent_at <= now:
            self._lost(Loss.STUCK if stuck_at <= now else Loss.SILENT)
            return None
        if self._next_ping <= now:
            self._next_ping = now + self._heartbeats.interval
            if self._ping is not None:
                self._ping()
        return min(self._next_ping, silent_at, stuck_at)

    @property
    def _silent_since(self) -> float | None:
        return self._heard_at if self._listening and self._ping is not None else None
