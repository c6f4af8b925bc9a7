"""What is for a session's client, in the order in which the client is to learn of it."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.farewell import Farewell
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.queue import Group
from arcp_trio.store.records import Entry

if TYPE_CHECKING:
    from arcp_trio.runtime.ledger import Share
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.runtime.session.unsent import Unsent
    from arcp_trio.runtime.session.watch import Watch


@attrs.define(eq=False)
class Hints:
    """Notice that a job has emitted entries; it may be dropped, as its journal has them."""

    watch: Watch
    entries: list[Entry]


@attrs.frozen
class AfterNumber:
    """A tail that names the number after which it stands, and so is made when that is known."""

    make: Callable[[int], bytes]
    size: int
    """Bytes that the tail will have, about."""

    def __len__(self) -> int:
        return self.size


@attrs.define(eq=False)
class Answer:
    """A frame without a number for one connection; it is lost with the connection."""

    attachment: Attachment
    tail: bytes | AfterNumber


@attrs.define(eq=False)
class Promise:
    """A frame without a number that a resume repeats, such as `job.accepted`.

    With a watch, the session watches the job from here on: its events follow this frame. If it does
    so already, a subscription has its watch go back to where this one would begin.
    """

    tail: bytes | AfterNumber
    watch: Watch | None = None


@attrs.define(eq=False)
class Repeat:
    """The acceptance of a job that the session has submitted before, under the same key (§7.2).

    If the session has had the terminal by then, this is a promise, and the watch begins, which
    brings the terminal again. Otherwise it is an answer, and the terminal is yet to come.
    """

    attachment: Attachment
    tail: bytes
    watch: Watch


@attrs.define(eq=False)
class Unwatch:
    """The session stops observing a job (§7.6)."""

    watch: Watch


@attrs.define(eq=False)
class Attach:
    """From here on the session's frames go to this connection, after a replay."""

    attachment: Attachment
    after_seq: int
    """The number that the replay follows."""
    unseen: Sequence[Watch] = ()
    """Subscriptions that end, as the client may no longer know of their jobs."""


@attrs.define(eq=False)
class Leave:
    """The connection is to be closed after everything before this.

    With `caught_up`, also after every event that the session is owed by then; with `stored`, once
    this group is stored.
    """

    attachment: Attachment
    farewell: Farewell
    caught_up: bool = False
    stored: Group | None = None


Item = Promise | Answer | Repeat | Unwatch | Attach | Leave
"""What keeps its place and is never dropped."""


class Look(enum.Enum):
    """Notice that the session may no longer be needed, or may be owed what was not hinted at."""

    LOOK = enum.auto()


OutboxItem = Hints | Item | Group | Look
"""A group comes when it is stored, if something of the session is in it."""


class Outbox:
    """A memory channel with one consumer, the scribe.

    The channel itself is not bounded: a promise must always find its place. What goes in is.
    `hint` drops hints past `outbox_items`, and the clerk waits in `room_for_answers`. Hints of one
    watch in a row share an item.
    """

    def __init__(self, limits: Limits, share: Share) -> None:
        self.unsent: Unsent | None = None
        """Where the scribe puts what it numbers; without one, hints are not wanted."""
        self.behind = True
        """Journals have to be read: hints were dropped or not wanted, or a batch was full."""
        self.hints = 0
        """Entries that were hinted at and that the scribe has not dealt with."""
        self._told = 0
        """Promises, answers and the like that are not sent yet, and answers that are due."""
        self._told_bytes = 0
        self._closed = False
        self._most_items = limits.outbox_items
        self._most_bytes = limits.outbox_bytes
        self._share = share
        self._last_hints: Hints | None = None
        """The last item, if the scribe has not taken it and entries may be added to it."""
        self._answered = Wake()
        self._looks = False
        """The scribe is to look, and has not been here since."""
        self.send, self._receive = trio.open_memory_channel[OutboxItem](math.inf)

    # -- its session's state

    def attach(self, unsent: Unsent) -> None:
        """Have hints kept from now on; the scribe numbers for `unsent`."""
        self.unsent = unsent
        unsent.wake_clerk = self._answered

    def detach(self) -> None:
        """Drop hints from now on: nobody is there to read what they announce."""
        if self.unsent is not None:
            self.unsent.close()
        self.unsent = None
        self.behind = True
        self._answered.set()

    def fall_behind(self) -> None:
        """Have the scribe read journals, from the cursors on."""
        self.behind = True

    def caught_up(self) -> None:
        """Number from hints again: the session is owed nothing."""
        self.behind = False

    # -- filling it

    def hint(self, watch: Watch, entry: Entry) -> None:
        """Give notice that a watched job has emitted `entry`; never waits, never fails."""
        if self.unsent is None or self.behind:
            watch.hinted = False
            return
        # Entries may be large, so a client that reads too slowly finds them in the journal. The
        # first hint is kept even then: the scribe may be asleep, and has to learn of the entry.
        most = self._most_items if self.unsent.has_room else 1
        if self.hints >= most:
            self.behind, watch.hinted = True, False
            return
        self.hints += 1
        last = self._last_hints
        if last is not None and last.watch is watch:
            last.entries.append(entry)  # costs a fraction of another item
        else:
            last = self._last_hints = Hints(watch, [entry])
            self.send.send_nowait(last)

    def tell(self, item: Item) -> None:
        """Add an item after everything before it."""
        self._told += 1
        if not self._closed:
            size = item_size(item)
            self._told_bytes += size
            self._share.take(size)
        self._last_hints = None
        self.send.send_nowait(item)

    def look(self) -> None:
        """Have the scribe look what there is to do, and whether the session is needed."""
        if not self._looks:
            self._looks = True
            self._last_hints = None
            self.send.send_nowait(Look.LOOK)

    def answer_due(self) -> None:
        """Count a request that waits for its turn to be answered like an answer."""
        self._told += 1

    def answer_given(self) -> None:
        """Stop counting a request that has had its turn."""
        self._told -= 1
        self._answered.set()

    async def room_for_answers(self) -> None:
        """Wait until fewer than `outbox_items` items are to be sent, and to come.

        Wait also until fewer than `outbox_bytes` of answers wait to be sent, and the principal's
        share has room for more.
        """
        while self._told >= self._most_items:
            await self._answered.wait()
        while self._too_many_bytes:
            await self._share.wait(self._answered)

    @property
    def _too_many_bytes(self) -> bool:
        waiting = self._told_bytes
        if self.unsent is not None:
            waiting += self.unsent.answer_bytes
        return waiting > 0 and (waiting >= self._most_bytes or self._share.full)

    # -- emptying it

    async def take(self) -> list[OutboxItem]:
        """Wait until something is there, and return all of it."""
        return [await self._receive.receive(), *self.drain()]

    def drain(self) -> list[OutboxItem]:
        """Return everything that is there."""
        self._last_hints, self._looks = None, False
        items: list[OutboxItem] = []
        try:
            while True:
                items.append(self._receive.receive_nowait())
        except trio.WouldBlock:
            return items

    def numbered(self, items: Sequence[OutboxItem]) -> None:
        """Stop counting the entries that were hinted at: the scribe has dealt with them."""
        self.hints -= sum(len(item.entries) for item in items if isinstance(item, Hints))

    def dealt_with(self, told: Sequence[Item]) -> None:
        """Stop counting items other than hints: their frames are sent, or nobody gets them."""
        if told:
            size = sum(map(item_size, told))
            self._told -= len(told)
            self._told_bytes -= size
            self._share.give(size)
            self._answered.set()

    def close(self) -> None:
        """Give back what is counted, and count no more: the session is no longer in memory."""
        self._share.give(self._told_bytes)
        self._told_bytes = 0
        self._closed = True


def item_size(item: Item) -> int:
    """Return how many bytes an item is for the client, about."""
    return len(item.tail) if isinstance(item, Answer | Promise | Repeat) else 0
