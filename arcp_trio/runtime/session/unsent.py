"""What a session has numbered and its connection has not sent yet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, repeat

import attrs

from arcp_trio.runtime.limits import Limits
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import Frame

NORMAL, GOING_AWAY, POLICY, TOO_BIG = 1000, 1001, 1008, 1009
"""Close codes."""


@attrs.frozen
class Farewell:
    """Behind everything that is here: close the socket with this."""

    code: int
    reason: str
    last: bytes | None = None
    """A frame to be said before; behind it nothing comes, not even an event that is due."""


Series = tuple[int, Sequence[bytes]]
"""Frames that follow each other: the number of the first, 0 if none has one, and their tails."""


class UnsentBytes:
    """What the tails of all sessions hold together."""

    def __init__(self, most: int) -> None:
        self.held = 0
        self._most = most
        self._waiting: set[Wake] = set()

    @property
    def passed(self) -> bool:
        """Whether they hold as much as they may."""
        return self.held >= self._most

    def move(self, size: int) -> None:
        """They hold so much more, or less."""
        passed = self.passed
        self.held += size
        if passed and not self.passed:
            for wake in self._waiting:
                wake.set()

    async def wait(self, wake: Wake) -> None:
        """Wait for this to be set, by somebody or because the tails may hold more again."""
        self._waiting.add(wake)
        try:
            await wake.wait()
        finally:
            self._waiting.discard(wake)


class Unsent:
    """Between one session's scribe, who adds, and one connection's sender, who takes.

    Holds references to encoded frames, not copies. When it is full the scribe numbers nothing more,
    so a client that does not read costs its session a cursor and this much memory. When all tails
    together are, only those who have read everything get more, a batch at a time.
    """

    def __init__(self, limits: Limits, total: UnsentBytes, wake_sender: Wake) -> None:
        # Not frame by frame: a million objects less is what the collector need not look at.
        self._series: list[Series] = []
        self._taken = 0
        """How many frames of the first series were taken."""
        self._count = 0
        self._bytes = 0
        self._limits = limits
        self._total = total
        self._wake_sender = wake_sender
        self._wake_scribe = Wake()
        self.closed = False
        self.farewell: Farewell | None = None

    @property
    def frames(self) -> int:
        """How many are here."""
        return self._count

    @property
    def has_room(self) -> bool:
        """Whether the scribe may go on; a closed tail holds nobody up."""
        if self.closed or not self._count:
            return True
        limits = self._limits
        fits = self._count < limits.tail_frames and self._bytes < limits.tail_bytes
        return fits and not self._total.passed

    async def room(self) -> None:
        """Wait until the scribe may go on."""
        while not self.has_room:
            await self._total.wait(self._wake_scribe)

    def extend(self, series: Sequence[Series]) -> None:
        """Hand stored frames to the sender."""
        if not self.closed and self.farewell is None:
            self._series.extend(series)
            for _, tails in series:
                self._hold(len(tails), sum(map(len, tails)))
            self._wake_sender.set()

    def end(self, farewell: Farewell) -> None:
        """Have the sender close the socket behind the frames that are here."""
        self.farewell = farewell
        self._wake_sender.set()

    def take(self, frames: int, size: int) -> list[Frame]:
        """The next frames: at most so many, and (but for the last) so many bytes."""
        taken: list[Frame] = []
        used_up = 0
        while used_up < len(self._series) and len(taken) < frames and size > 0:
            first_seq, tails = self._series[used_up]
            start = self._taken
            part, part_size = _cut(tails[start : start + frames - len(taken)], size)
            taken += zip(count(first_seq + start) if first_seq else repeat(0), part, strict=False)
            size -= part_size
            self._hold(-len(part), -part_size)
            self._taken += len(part)
            if self._taken == len(tails):
                used_up += 1
                self._taken = 0
        del self._series[:used_up]
        if taken:
            self._wake_scribe.set()
        return taken

    def close(self) -> None:
        """The connection is over: what was not sent will be replayed from the log."""
        self.closed = True
        self._series.clear()
        self._hold(-self._count, -self._bytes)
        self._wake_scribe.set()

    def _hold(self, frames: int, size: int) -> None:
        self._count += frames
        self._bytes += size
        self._total.move(size)


def _cut(tails: Sequence[bytes], size: int) -> tuple[Sequence[bytes], int]:
    """As many of these as it takes to fill so many bytes, or all; and how many bytes they are."""
    sizes = list(map(len, tails))
    total = sum(sizes)
    while total - sizes[-1] >= size:
        total -= sizes.pop()
    return tails[: len(sizes)], total
