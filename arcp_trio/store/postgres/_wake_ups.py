"""Wake-ups between nodes, by NOTIFY. They may get lost: each says no more than where to look."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import psycopg
import trio
from psycopg import sql

from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.outage import Outage
from arcp_trio.store.postgres._connections import DatabaseThread, Membership
from arcp_trio.store.postgres._schema import Database

log = logging.getLogger(__name__)

# In a transaction of its own behind the commit of what it is about. In that one's place it would
# keep every other node that commits waiting, and be heard before there is anything to see.
_NOTIFY: Final = """WITH unsynced AS (SELECT set_config('synchronous_commit', 'off', true))
    SELECT pg_notify(channel, payload)
    FROM unsynced, unnest(%s::text[], %s::text[]) AS told (channel, payload)"""

ASKED: Final = "c"
"""The word for a command, or an answer to one."""
EVERYTHING: Final = "*"
"""The word for journals that are not named."""
MOST_BYTES: Final = 7_999
"""PostgreSQL takes no more in one notification."""
MOST_DIGITS: Final = 19
MOST_KEYS: Final = 10_000
"""Journals that are kept apart until somebody looks."""

LISTEN_SECONDS: Final = 30.0
"""How long the listener waits before it looks whether its connection is still there."""
PAUSE_SECONDS: Final = 1.0
"""Pause before the listener connects again."""


class WakeUps:
    """Wakes other nodes, and is woken by them.

    Both are merged by journal: there is no queue that could grow.
    """

    def __init__(self, membership: Membership) -> None:
        """Make them for a node that is yet to join."""
        self._membership = membership
        # A connection of its own: wake-ups do not wait until others have got their locks.
        self._sender = DatabaseThread(membership, "wake-ups")
        self._listener = DatabaseThread(membership, "listener")
        self._listening: Database | None = None
        """The connection that listens."""
        self._due: dict[int, set[str]] = {}
        """Words that are to be sent, by node."""
        self._some_due = trio.Event()
        self._moved: set[int] | None = set()
        self._some_moved = trio.Event()
        self._some_asked = trio.Event()

    async def run(self) -> None:
        """Send and listen, until cancelled."""
        with self._sender, self._listener:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._send, name="wake-ups")
                nursery.start_soon(self._listen, name="listener")

    # -- to other nodes

    def moved_at(self, moved: Mapping[int, Iterable[int]]) -> None:
        """Wake nodes, given with the keys of the journals that they follow and that have moved."""
        for node, keys in moved.items():
            self._add(node, *map(str, keys))

    def asked_at(self, nodes: Iterable[int]) -> None:
        """Wake nodes that have a command, or the answer to one."""
        for node in nodes:
            self._add(node, ASKED)

    def _add(self, node: int, *words: str) -> None:
        if node == self._membership.node:
            self._hear(" ".join(words))
        else:
            self._due.setdefault(node, set()).update(words)
            self._some_due.set()

    async def _send(self) -> None:
        outage = Outage(log, "other nodes not woken, they look later")
        with suppress(StoreError, Fenced):  # the first wake-up finds its connection made
            await self._sender.run(lambda _: None)
        while True:
            await self._some_due.wait()
            self._some_due = trio.Event()
            due, self._due = self._due, {}
            channels = [self._channel(node) for node in due]
            payloads = [_payload(words) for words in due.values()]
            try:
                with outage:
                    await self._sender.run(partial(_notify, channels, payloads))
            except Fenced:
                return

    def _channel(self, node: int) -> str:
        return f"{self._membership.address.schema}_{node}"

    # -- from other nodes

    async def moved(self) -> frozenset[int] | None:
        """Wait until journals are said to have moved; see `Follows.moved`."""
        await self._some_moved.wait()
        self._some_moved = trio.Event()
        moved, self._moved = self._moved, set()
        return None if moved is None else frozenset(moved)

    async def asked(self) -> None:
        """Wait until there is said to be a command or an answer."""
        await self._some_asked.wait()
        self._some_asked = trio.Event()

    async def _listen(self) -> None:
        outage = Outage(log, "wake-ups of other nodes not heard, this one looks now and then")
        while True:
            payloads: Sequence[str] | None = None
            try:
                with outage:
                    payloads = await self._listener.run(self._next)
            except Fenced:
                return
            if payloads is None:
                await trio.sleep(PAUSE_SECONDS)
                continue
            for payload in payloads:
                self._hear(payload)
            assert self._listening is not None
            # The event loop waits, not the thread: the loop naps while a call is outstanding.
            with trio.move_on_after(LISTEN_SECONDS):
                await trio.lowlevel.wait_readable(self._listening.fileno())

    def _next(self, db: Database) -> Sequence[str]:
        """Take the notifications that have come; on a new connection any may have been missed."""
        if db is self._listening:
            return [told.payload for told in db.notifies(timeout=0)]
        db.execute(
            sql.SQL("LISTEN {}").format(sql.Identifier(self._channel(self._membership.node)))
        )
        self._listening = db
        return [f"{EVERYTHING} {ASKED}"]

    def _hear(self, payload: str) -> None:
        for word in payload.split():
            if word == ASKED:
                self._some_asked.set()
            elif word == EVERYTHING:
                self._moved = None
            elif word.isdecimal() and len(word) <= MOST_DIGITS and self._moved is not None:
                self._moved.add(int(word))
        if self._moved is None or self._moved:
            if self._moved is not None and len(self._moved) > MOST_KEYS:
                self._moved = None
            self._some_moved.set()


def _payload(words: set[str]) -> str:
    told = " ".join(words)
    if len(told) <= MOST_BYTES:
        return told
    return " ".join({EVERYTHING} | (words & {ASKED}))


def _notify(channels: Sequence[str], payloads: Sequence[str], db: Database) -> None:
    try:
        db.execute(_NOTIFY, (list(channels), list(payloads)))
    except psycopg.errors.ProgramLimitExceeded as error:
        raise StoreError(f"the database's queue of notifications is full ({error})") from error
