"""A session: what outlives its connections (§6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.session.outbox import (
    Answer,
    Attach,
    Hints,
    Leave,
    OutboxItem,
    Promise,
    Unwatch,
)
from arcp_trio.runtime.session.unsent import Unsent
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.runtime.wake import Wake
from arcp_trio.store.interface import Store
from arcp_trio.store.records import Entry, SessionRow
from arcp_trio.store.writes import MoveFloor, RotateToken

if TYPE_CHECKING:
    from arcp_trio.runtime.connection.connection import Connection
    from arcp_trio.runtime.limits import Limits
    from arcp_trio.runtime.session.clerk import Command


class Session:
    """A session in memory: while a connection is attached, or something is still in hand for it.

    Everything that matters is in the store too; a session nobody needs is let go and woken from its
    row.
    """

    def __init__(self, store: Store, limits: Limits, row: SessionRow) -> None:
        self.id = row.session_id
        self.principal = row.principal
        self.features = row.features
        self.dialect = row.dialect
        self.token_digest = row.token_digest
        self.spare_digests = row.spare_digests
        self.top = row.top
        self.floor = row.floor
        self.log_rows = row.log_rows
        self.acked = row.acked
        self.over = False
        """It cannot go on: it will not be parked, but dropped."""
        self.watches: dict[str, Watch] = {}
        self.subscriptions: dict[str, Watch] = {}
        """Those that it observes, from the moment that was asked for until it is asked to stop."""
        self.connection: Connection | None = None
        """Who is sent what gets a number."""
        self.holder: Connection | None = None
        """Who was given the newest token, and is attached or about to be."""
        self.tail: Unsent | None = None
        self.behind = True
        self.window_ends: float | None = None
        """When it stops being resumable, unless it is attached before."""
        self.last_place: trio.Event | None = None
        """The end of the line in which submits are answered."""
        self.accepting: set[str] = set()
        """Jobs with a key whose acceptance is not in the log yet."""
        self._store = store
        self._most_items = limits.outbox_items
        self.storing = 0
        """How many batches of the scribe's are not stored yet."""
        self._hints = 0
        self._last_hints: Hints | None = None
        """The last item of the outbox, if more may be added to it."""
        # Bounded by hand: hints are dropped and commands wait, but what was promised always finds
        # its place.
        self._outbox: list[OutboxItem] = []
        self._told = 0
        self._holds = 0
        self._changed = trio.lowlevel.ParkingLot()
        """Woken when the outbox is filled, and when a connection or the last need has gone."""
        self._answers_taken = Wake()
        self._most_bytes = limits.inbox_bytes
        self._bytes = 0
        self._bytes_done = Wake()
        self._send_inbox, self.inbox = trio.open_memory_channel["Command"](limits.inbox_items)

    @property
    def facts(self) -> dict[str, object]:
        """What every line of the log about this session has."""
        return {"session_id": self.id, "principal": self.principal}

    # -- towards the client

    def hint(self, watch: Watch, entry: Entry) -> None:
        """A job that this session watches has emitted. Never waits, never fails."""
        if self.tail is None or self.behind:
            return
        # Entries may be large: for a client that reads too slowly they wait in the journal. But for
        # the first: the scribe may be asleep, and must learn that there is something to catch up.
        most = self._most_items if self.tail.has_room else 1
        if self._hints >= most:
            self.behind = True
            return
        self._hints += 1
        last = self._last_hints
        if last is not None and last.watch is watch:
            last.entries.append(entry)  # costs a fraction of another item
        else:
            hints = Hints(watch, [entry])
            self._put(hints)
            self._last_hints = hints

    def tell(self, item: Promise | Answer | Unwatch | Attach | Leave) -> None:
        """Put something in its place behind everything before it."""
        self.hold()
        self._told += 1
        self._put(item)

    def _put(self, item: OutboxItem) -> None:
        self._last_hints = None
        self._outbox.append(item)
        self._changed.unpark_all()

    def stop_observing(self, job_id: str) -> None:
        """Nothing more is emitted to it; what was before may still come."""
        watch = self.subscriptions.pop(job_id, None)
        if watch is not None:
            watch.leave_job()
            self.tell(Unwatch(watch))

    def take(self) -> list[OutboxItem]:
        """Empty the outbox, for the scribe to deal with all that was in it."""
        self._last_hints = None
        taken, self._outbox = self._outbox, []
        return taken

    async def outbox_filled(self) -> None:
        """Wait until there is something in the outbox, or nobody needs it in memory any more."""
        while self.needed and not self._outbox:
            await self._changed.park()

    def taken(self, hints: int, told: int) -> None:
        """The scribe has dealt with so many hints and other items."""
        self._hints -= hints
        if told:
            self._told -= told
            self._holds -= told
            self._look_whether_needed()
            self._answers_taken.set()

    def answer_due(self) -> None:
        """A request waits for its turn to be answered: it counts like an answer."""
        self._told += 1

    def answer_given(self) -> None:
        """It has had its turn."""
        self._told -= 1
        self._answers_taken.set()

    async def room_for_answers(self) -> None:
        """Wait until what the client was already answered is nearly all on its way."""
        while self._told >= self._most_items:
            await self._answers_taken.wait()

    # -- from the client

    async def command(self, command: Command, size: int = 0) -> None:
        """Have the clerk execute a command behind those before it; waits for room.

        The `size` of the frame that it came in counts until the command is done with.
        """
        self.hold()
        taken = 0
        try:
            while size and self._bytes and self._bytes + size > self._most_bytes:
                await self._bytes_done.wait()
            taken = size
            self.request_begun(taken)
            await self._send_inbox.send(command)
        except BaseException:
            self.request_done(taken)
            self.release()
            raise

    def request_begun(self, size: int) -> None:
        """So many bytes are in hand."""
        self._bytes += size

    def request_done(self, size: int) -> None:
        """They are not any more."""
        self._bytes -= size
        self._bytes_done.set()

    def ack(self, seq: int) -> None:
        """The client has processed everything up to `seq`: it need not be replayed (§6.5)."""
        first = not self.acked
        if seq > self.floor or first:
            self.acked = True
            self.floor = max(seq, self.floor)
            self._store.put(MoveFloor(self.id, self.floor, acked=True))

    def heard(self, connection: Connection) -> None:
        """A frame came from a client that has the newest token: the others are used up (§6.3)."""
        if self.spare_digests and connection is self.holder:
            self.spare_digests = ()
            self._store.put(
                RotateToken(self.id, self.token_digest, (), self.features, self.dialect)
            )

    # -- its life

    def give_to(self, connection: Connection) -> None:
        """A connection was let in: it is the one to hear from, and no other."""
        self.evict()
        self.holder = connection

    def evict(self) -> None:
        """Who has the token may take over from a socket that only looks alive."""
        if self.holder is not None:
            self.holder.end(1000, "the session was resumed elsewhere")

    def detach(self, connection: Connection) -> None:
        """A connection ended. The jobs notice nothing."""
        if self.holder is connection:
            self.holder = None
        if self.connection is connection:
            self.connection = None
            self.set_tail(None)
            self._changed.unpark_all()

    def set_tail(self, tail: Unsent | None) -> None:
        """Have the scribe number for this tail, or for none; what the last one held is logged."""
        if self.tail is not None:
            self.tail.close()
        self.tail = tail
        self.behind = True
        for watch in self.watches.values():
            if watch.job is not None:
                watch.job.journal.reader_moved()

    def hold(self) -> None:
        """Something is in hand for this session: it must stay in memory."""
        self._holds += 1

    def release(self) -> None:
        """It is done."""
        self._holds -= 1
        self._look_whether_needed()

    def _look_whether_needed(self) -> None:
        # Asked for every command and answer: the scribe is only woken when there is an end to it.
        if not self.needed:
            self._changed.unpark_all()

    @property
    def lag(self) -> int:
        """How many events its client is behind: they wait to be numbered, sent, or acknowledged.

        What was sent counts for those who acknowledge only (§6.5); nobody attached, nothing counts.
        """
        if self.tail is None:
            return 0
        owed = sum(watch.owed for watch in self.watches.values()) if self.behind else self._hints
        return owed + (self.top - self.floor if self.acked else self.tail.frames)

    @property
    def waits_for_store(self) -> bool:
        """Whether something is in hand that, as far as one can tell, waits for the store."""
        return self.storing > 0 or self._holds > 0

    @property
    def needed(self) -> bool:
        """Whether it must stay in memory. No is true only until the next checkpoint."""
        return self.connection is not None or self._holds > 0

    async def left(self) -> None:
        """Wait until nobody is attached."""
        while self.connection is not None:
            await self._changed.park()
