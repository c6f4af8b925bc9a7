"""What is for a session's client, in the order in which the client is to learn of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import trio

from arcp_trio.runtime.farewell import Farewell
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.records import Entry

if TYPE_CHECKING:
    from arcp_trio.runtime.session.attachment import Attachment
    from arcp_trio.runtime.session.unsent import Unsent
    from arcp_trio.runtime.session.watch import Watch


@attrs.define(eq=False)
class Hints:
    """Notice that a job has emitted entries; it may be dropped, as its journal has them."""

    watch: Watch
    entries: list[Entry]


AfterNumber = Callable[[int], bytes]
"""Makes a tail that names the number after which it stands."""


@attrs.define(eq=False)
class Answer:
    """A frame without a number for one connection; it is lost with the connection."""

    attachment: Attachment
    tail: bytes | AfterNumber


@attrs.define(eq=False)
class Promise:
    """A frame without a number that a resume repeats, such as `job.accepted`.

    With a watch, the session watches the job from here on: its events follow this frame.
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


@attrs.define(eq=False)
class Leave:
    """The connection is to be closed after everything before this.

    With `caught_up`, also after every event that the session is owed by then.
    """

    attachment: Attachment
    farewell: Farewell
    caught_up: bool = False


@attrs.define(eq=False)
class Look:
    """Nothing is for the client, but the scribe may have to stop: the session is not needed."""


Item = Promise | Answer | Repeat | Unwatch | Attach | Leave
"""What keeps its place and is never dropped."""

OutboxItem = Hints | Item | Look


class Outbox:
    """A memory channel with one consumer, the scribe.

    The channel itself is not bounded. `hint` drops hints past `outbox_items` and the clerk waits in
    `room_for_answers`, but a promise must always find its place. While the scribe is busy, hints of
    one watch in a row share an item.
    """

    def __init__(self, most_items: int) -> None:
        self.unsent: Unsent | None = None
        """Where the scribe puts what it numbers; without one, hints are not wanted."""
        self.behind = True
        """Journals have to be read: hints were dropped or not wanted, or a batch was full."""
        self.hints = 0
        """Entries that were hinted at and that the scribe has not dealt with."""
        self._told = 0
        """Items other than hints that the scribe has not dealt with, and answers that are due."""
        self._most_items = most_items
        self._last_hints: Hints | None = None
        """The last item, if the scribe has not taken it and entries may be added to it."""
        self._answered = Wake()
        self._send, self.items = trio.open_memory_channel[OutboxItem](math.inf)
        """`items` is where the scribe waits for the next one; `take` returns all that are there."""

    # -- its session's state

    def attach(self, unsent: Unsent) -> None:
        """Have hints kept from now on; the scribe numbers for `unsent`."""
        self.unsent = unsent

    def detach(self) -> None:
        """Drop hints from now on: nobody is there to read what they announce."""
        if self.unsent is not None:
            self.unsent.close()
        self.unsent = None
        self.behind = True

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
            return
        # Entries may be large, so a client that reads too slowly finds them in the journal. The
        # first hint is kept even then: the scribe may be asleep, and has to learn of the entry.
        most = self._most_items if self.unsent.has_room else 1
        if self.hints >= most:
            self.behind = True
            return
        self.hints += 1
        last = self._last_hints
        if last is not None and last.watch is watch:
            last.entries.append(entry)  # costs a fraction of another item
        else:
            last = self._last_hints = Hints(watch, [entry])
            self._send.send_nowait(last)

    def tell(self, item: Item) -> None:
        """Add an item after everything before it."""
        self._told += 1
        self._last_hints = None
        self._send.send_nowait(item)

    def look(self) -> None:
        """Have the scribe look whether the session is still needed."""
        if not self.items.statistics().current_buffer_used:
            self._last_hints = None
            self._send.send_nowait(Look())

    def answer_due(self) -> None:
        """Count a request that waits for its turn to be answered like an answer."""
        self._told += 1

    def answer_given(self) -> None:
        """Stop counting a request that has had its turn."""
        self._told -= 1
        self._answered.set()

    async def room_for_answers(self) -> None:
        """Wait until the scribe has fewer than `outbox_items` items to deal with, and to come."""
        while self._told >= self._most_items:
            await self._answered.wait()

    # -- emptying it

    def take(self) -> list[OutboxItem]:
        """Return everything that is there."""
        taken: list[OutboxItem] = []
        self._last_hints = None
        try:
            while True:
                taken.append(self.items.receive_nowait())
        except trio.WouldBlock:
            return taken

    def taken(self, hints: int, told: int) -> None:
        """Stop counting `hints` entries and `told` other items: the scribe has dealt with them."""
        self.hints -= hints
        if told:
            self._told -= told
            self._answered.set()
