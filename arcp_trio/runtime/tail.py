"""What a session has numbered and its connection has not sent yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import attrs

from arcp_trio.runtime.limits import Limits
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import Frame


@attrs.frozen
class Farewell:
    """Behind the last frame: close the socket with this."""

    code: int
    reason: str


class TailBytes:
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


class Tail:
    """Between one session's scribe, who adds, and one connection's sender, who takes.

    Holds references to encoded frames, not copies. When it is full the scribe numbers nothing more,
    so a client that does not read costs its session a cursor and this much memory. When all tails
    together are, only those who have read everything get more, a batch at a time.
    """

    def __init__(self, limits: Limits, total: TailBytes, wake_sender: Wake) -> None:
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._limits = limits
        self._total = total
        self._wake_sender = wake_sender
        self._wake_scribe = Wake()
        self.closed = False
        self.farewell: Farewell | None = None

    @property
    def has_room(self) -> bool:
        """Whether the scribe may go on; a closed tail holds nobody up."""
        limits, frames = self._limits, len(self._frames)
        if self.closed or not frames:
            return True
        fits = frames < limits.tail_frames and self._bytes < limits.tail_bytes
        return fits and not self._total.passed

    async def room(self) -> None:
        """Wait until the scribe may go on."""
        while not self.has_room:
            await self._total.wait(self._wake_scribe)

    def extend(self, frames: Sequence[Frame]) -> None:
        """Hand stored frames to the sender."""
        if not self.closed and self.farewell is None:
            self._frames.extend(frames)
            self._hold(sum([len(frame[1]) for frame in frames]))
            self._wake_sender.set()

    def end(self, farewell: Farewell) -> None:
        """Have the sender close the socket behind the frames that are here."""
        self.farewell = farewell
        self._wake_sender.set()

    def take(self, frames: int, size: int) -> list[Frame]:
        """The next frames: at most so many, and (but for the last) so many bytes."""
        taken: list[Frame] = []
        queue = self._frames
        before = size
        while queue and len(taken) < frames and size > 0:
            frame = queue.popleft()
            size -= len(frame[1])
            taken.append(frame)
        if taken:
            self._hold(size - before)
            self._wake_scribe.set()
        return taken

    def close(self) -> None:
        """The connection is over: what was not sent will be replayed from the log."""
        self.closed = True
        self._frames.clear()
        self._hold(-self._bytes)
        self._wake_scribe.set()

    def _hold(self, size: int) -> None:
        self._bytes += size
        self._total.move(size)
