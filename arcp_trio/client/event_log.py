"""The events of one job that a client keeps: for its handles, and for each of their iterations.

The log only grows at its end, and every iteration has a place of its own. What all of them have
passed stays for iterations that begin later, until the client needs the room (`unread.py`).

The runtime may send events again: in a session that follows the job already, a subscription with
history brings them in new numbers. A *replay* is for the handle that has asked for it; the views
from before it do not see what they have had. It ends with the frame that was the last one before,
which has the same id.
"""

from __future__ import annotations

from collections import deque
from typing import Final
from weakref import ReferenceType, WeakSet, ref

import attrs
import msgspec
import trio

from arcp_trio.client.events import Event, is_notice
from arcp_trio.client.unread import UnreadEvents

NOWHERE: Final = -1
"""A place before the log: what is there comes only from the runtime."""


class _Identified(msgspec.Struct, gc=False):
    id: str = ""


_decode_id: Final = msgspec.json.Decoder(_Identified).decode


@attrs.define
class Repetition:
    """Frames that the runtime sends again."""

    generation: int
    """The newest views that do not see them."""
    last_id: str | None
    """The id of the last of them; None if it is not known, as the newest views have seen none."""
    left: float
    """How many are still to come, at most."""
    told: bool
    """Whether `on_event` gets them."""
    builds: bool
    """Whether the job's state is made from them: what came before was not all."""


class EventLog:
    """The events of one job, and the views and cursors of those who read them."""

    def __init__(self, unread: UnreadEvents) -> None:
        self.first = 0
        """The place of the oldest event that is kept."""
        self.size = 0
        """How many bytes the kept events had on the wire."""
        self.generation = 0
        """How many replays there have been."""
        self.claimed = False
        """Whether the program has got a handle, or is about to."""
        self.cursors: WeakSet[ReadingPlace] = WeakSet()
        self.unread = unread
        self.events: deque[tuple[Event, int, int]] = deque()
        """The kept events, with their sizes and the oldest generation that sees each."""
        self.furthest = 0
        """The place up to which any iteration has come."""
        self._keeps = True
        self._views: set[ReferenceType[object]] = set()
        self._replays: list[Repetition] = []
        """The replays under way. A later one repeats part of the one before it."""
        self._last_frame: str | bytes | None = None
        """The last frame since the last replay began."""
        self._changed = trio.lowlevel.ParkingLot()
        self._awaited = False
        """Somebody may wait for a change."""

    @property
    def end(self) -> int:
        """The place after the last event."""
        return self.first + len(self.events)

    @property
    def fresh(self) -> bool:
        """Whether nothing has come since the beginning, or since the last replay began."""
        return self._last_frame is None

    # -- what arrives

    def add(self, event: Event, frame: str | bytes) -> Repetition | None:
        """Keep an event; return the replay that it belongs to, if it came before."""
        generation, replay = 0, None
        is_the_jobs = not is_notice(event)
        if self._replays and is_the_jobs:
            replay = self._replays[-1]
            generation = replay.generation + 1
            replay.left -= 1
            if replay.left <= 0 or _decode_id(frame).id == replay.last_id:
                self._replays.pop()
        if is_the_jobs:
            self._last_frame = frame
        if not self._keeps or (self.claimed and not self._views):
            self.discard()
            self.first += 1
            return replay
        if not self.events:
            self.unread.backlogs.add(self)
        size = len(frame)
        self.events.append((event, size, generation))
        self.size += size
        self.unread.add(size)
        if self._awaited:
            self.wake()
        return replay

    def begin_replay(self, most: float, *, told: bool, builds: bool) -> None:
        """Note that up to `most` frames come again, for views that are made from now on."""
        frame = self._last_frame
        last_id = None if frame is None else _decode_id(frame).id
        self._replays.append(Repetition(self.generation, last_id, most, told, builds))
        self.generation += 1
        self._last_frame = None
        self._keeps = True

    async def changed(self) -> None:
        """Wait until there is another event, or `wake` is called."""
        with self.unread.waiting():
            self._awaited = True
            await self._changed.park()

    def wake(self) -> None:
        """Have those who wait for a change look again."""
        self._awaited = False
        self._changed.unpark_all()

    # -- who reads it

    def claim(self, view: object) -> None:
        """Keep events as long as this view, or another one, exists."""
        self.claimed = True
        self._views.add(ref(view, self._released))

    def release(self, view: object) -> None:
        """Keep no events for this view any longer."""
        self._released(ref(view))

    def _released(self, view: ReferenceType[object]) -> None:
        # The garbage collector may call this at any moment.
        self._views.discard(view)
        if not self._views:
            self.unread.look_soon()

    @property
    def viewed(self) -> bool:
        """Whether there is a view."""
        return bool(self._views)

    @property
    def wanted(self) -> bool:
        """Whether the program has a handle, or may get one."""
        return bool(self._views) or not self.claimed

    @property
    def iterated(self) -> bool:
        """Whether the program has an iterator over the events."""
        return len(self.cursors) > 0

    # -- giving it up

    @property
    def passed(self) -> int:
        """How many events no iteration still has to read."""
        places = [cursor.place for cursor in self.cursors]
        return max(0, min(places, default=self.furthest) - self.first)

    def let_go_passed(self) -> None:
        """Forget the events that no iteration still has to read."""
        count = self.passed
        if count == len(self.events):
            self._forget_all()
            return
        size = sum(self.events.popleft()[1] for _ in range(count))
        self.first += count
        self._forgot(size, count)

    def discard(self) -> None:
        """Forget all events, and those to come up to the next replay."""
        self._keeps = False
        if self.events:
            self._forget_all()

    def _forget_all(self) -> None:
        count, size = len(self.events), self.size
        self.first += count
        self.events.clear()
        self._forgot(size, count)

    def _forgot(self, size: int, count: int) -> None:
        self.size -= size
        self.unread.take(size, count)
        if not self.events:
            self.unread.backlogs.discard(self)


class ReadingPlace:
    """The place of one iteration in a log."""

    def __init__(self, log: EventLog, place: int, generation: int) -> None:
        self.place = place
        self._log = log
        self._generation = generation
        log.cursors.add(self)

    @property
    def missed(self) -> bool:
        """Whether the next event is no longer kept."""
        return self.place < self._log.first

    def next(self) -> Event | None:
        """Return the next event, if it is kept, and has come."""
        log, place = self._log, self.place
        first, events = log.first, log.events
        while first <= place < first + len(events):
            event, _, oldest = events[place - first]
            self.place = place = place + 1
            if oldest <= self._generation:
                if place > log.furthest:  # noqa: PLR1730 - max() takes longer
                    log.furthest = place
                if log.unread.stalled:
                    log.unread.taken()
                return event
        return None
