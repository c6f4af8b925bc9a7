"""What a session has numbered and its connection has not sent yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, repeat
from typing import TYPE_CHECKING

from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from arcp_trio.runtime.farewell import Farewell
    from arcp_trio.runtime.ledger import Share
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.store.records import NumberedTail

Series = tuple[int, Sequence[bytes]]
"""Consecutive frames: the number of the first, or 0 if they have no numbers, and their tails."""


class Unsent:
    """Frames on their way from one session's scribe, which adds, to one connection's sender.

    It holds references to encoded frames, not copies. When it is full the scribe numbers nothing
    more, so a client that does not read costs a cursor and this much memory. When its principal's
    share is full, only connections that have sent everything get more, a batch at a time.
    """

    def __init__(self, limits: Limits, share: Share) -> None:
        # Series rather than frames: a million objects fewer for the garbage collector to look at.
        self._series: list[Series] = []
        self._taken = 0
        """How many frames of the first series have been taken."""
        self._count = 0
        self._bytes = 0
        self._answer_bytes = 0
        self._limits = limits
        self._share = share
        self.send: Callable[[], None] | None = None
        """Has the sender send what is here; None until it begins."""
        self._wake_scribe = Wake()
        self.wake_clerk = Wake()
        """Wakes the clerk, which takes no command while too much waits to be sent."""
        self.closed = False
        self.farewell: Farewell | None = None

    @property
    def frames(self) -> int:
        """How many there are."""
        return self._count

    @property
    def answer_bytes(self) -> int:
        """Bytes of frames without a number: answers and promises."""
        return self._answer_bytes

    @property
    def has_room(self) -> bool:
        """Whether the scribe may add frames; a closed one holds nobody up."""
        if self.closed or not self._count:
            return True
        limits = self._limits
        fits = self._count < limits.tail_frames and self._bytes < limits.tail_bytes
        return fits and not self._share.full

    async def room(self) -> None:
        """Wait until the scribe may add frames."""
        while not self.has_room:
            await self._share.wait(self._wake_scribe)

    def extend(self, series: Sequence[Series]) -> None:
        """Hand stored frames to the sender."""
        if not self.closed and self.farewell is None:
            before = self._bytes
            for first_seq, tails in series:
                size = sum(map(len, tails))
                # A tuple of bytes, unlike a list, is nothing that the garbage collector looks at.
                self._series.append((first_seq, tuple(tails)))
                self._count += len(tails)
                self._bytes += size
                if not first_seq:
                    self._answer_bytes += size
            self._share.take(self._bytes - before)
            self._send()

    def end(self, farewell: Farewell) -> None:
        """Have the sender close the connection after the frames that are here."""
        self.farewell = farewell
        self._send()

    def _send(self) -> None:
        if self.send is not None:
            self.send()

    def take(self, frames: int, size: int) -> list[NumberedTail]:
        """Take the next frames: at most `frames`, and up to the one that completes `size` bytes."""
        taken: list[NumberedTail] = []
        used_up = 0
        while used_up < len(self._series) and len(taken) < frames and size > 0:
            first_seq, tails = self._series[used_up]
            start = self._taken
            part, part_size = _cut(tails[start : start + frames - len(taken)], size)
            taken += zip(count(first_seq + start) if first_seq else repeat(0), part, strict=False)
            size -= part_size
            self._release(len(part), part_size)
            if not first_seq:
                self._answer_bytes -= part_size
            self._taken += len(part)
            if self._taken == len(tails):
                used_up += 1
                self._taken = 0
        del self._series[:used_up]
        if taken:
            self._wake_scribe.set()
            self.wake_clerk.set()
        return taken

    def close(self) -> None:
        """Drop everything, as the connection has ended: a resume replays it from the log."""
        self.closed = True
        self._series.clear()
        self._answer_bytes = 0
        self._release(self._count, self._bytes)
        self._wake_scribe.set()
        self.wake_clerk.set()

    def _release(self, frames: int, size: int) -> None:
        self._count -= frames
        self._bytes -= size
        self._share.give(size)


def _cut(tails: Sequence[bytes], size: int) -> tuple[Sequence[bytes], int]:
    """Return as many tails as it takes to fill `size` bytes, or all, and their size."""
    sizes = list(map(len, tails))
    total = sum(sizes)
    while total - sizes[-1] >= size:
        total -= sizes.pop()
    return tails[: len(sizes)], total
