"""The store in a PostgreSQL database: its writer and its housekeeping."""

from __future__ import annotations

import logging
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Final

import psycopg
import trio
from msgspec.structs import replace

from arcp_trio.store.housekeeping import Housekeeping
from arcp_trio.store.interface import Store
from arcp_trio.store.outage import Outage
from arcp_trio.store.postgres import _checks, _nodes
from arcp_trio.store.postgres._address import address_of
from arcp_trio.store.postgres._cleaning import clean_piece
from arcp_trio.store.postgres._connections import DatabaseThread, Membership, check_room, set_up
from arcp_trio.store.postgres._errors import FENCED
from arcp_trio.store.postgres._held_up import cut_off_what_holds_up
from arcp_trio.store.postgres._retention import expire
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres._wake_ups import WakeUps
from arcp_trio.store.postgres._writing import Committed, GroupPipeline
from arcp_trio.store.postgres.reader import READERS, PostgresReader, ReadLines
from arcp_trio.store.postgres.sharing import PostgresShared
from arcp_trio.store.shared import EngineCall
from arcp_trio.store.writes import Expire, Write
from arcp_trio.version import __version__

log = logging.getLogger(__name__)

PACE_SECONDS: Final = 0.002
"""See `WriteQueue`. A transaction costs this process about 0.3 ms, and the server as much."""

OTHER_CONNECTIONS: Final = 4
"""What a node needs beside its writer and its readers: between nodes, beats, wake-ups, listener.
Without one of them it would join, and be taken for dead."""

TROUBLE_SECONDS: Final = 0.5
"""See `WriteQueue`. A node that takes over cuts the connections of the other one before that one is
gone, and it is to learn so before it tells its clients of a store that cannot be used."""

ROUND_PIECES: Final = 32
"""Pieces of cleaning in a round."""

IDLE_SECONDS: Final = 5.0
"""How long housekeeping waits for a change: other nodes leave something to clean, too."""

CLOSE_SECONDS: Final = 10.0
"""How long leaving the other nodes may take."""


class PostgresStore(PostgresReader, Store):
    """Keeps everything in a PostgreSQL database, which the runtimes of several machines can share.

    The schema has to be there: `arcp-trio store init` makes it. Each start of a runtime is a new
    node. What was stored survives the end of any node and, by default, a loss of power.
    """

    name = "PostgreSQL"

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "arcp",
        node: str | None = None,
        synchronous: bool = True,
    ) -> None:
        """Make a store in a schema of the database that `dsn` names.

        Args:
            dsn: a URL such as `postgresql://role@host:port/database`, or libpq's words. Connections
                to other machines are encrypted, and the server's certificate is checked, unless
                `sslmode` says otherwise.
            schema: the schema that has the tables.
            node: the node's name. A node that has the name already is fenced, and this one goes on
                with what it had. By default, the machine's name and a random part.
            synchronous: whether a group is synced before anything of it is told. If not, a crash of
                the server loses the last moments.
        """
        super().__init__()
        name = node or f"{socket.gethostname()}-{secrets.token_hex(3)}"
        self._membership = Membership(address_of(dsn, schema), synchronous, name)
        self._lines = ReadLines(doubt=self.doubt)
        self.pace_seconds = PACE_SECONDS
        self.trouble_seconds = TROUBLE_SECONDS
        self.durable = synchronous
        self._writer = DatabaseThread(self._membership, "writer", standstill=True)
        self._readers = [DatabaseThread(self._membership, f"reader {n}") for n in range(READERS)]
        self._between = DatabaseThread(self._membership, "between nodes")
        self._wake_ups = WakeUps(self._membership)
        self._shared = PostgresShared(self._membership, self._between, self, self._wake_ups)
        self._committed = 0
        """Number of the last group that is known to be stored."""
        self._in_doubt = False
        """The last try to store a group seemed to fail, and may not have."""
        self._still_to_forget: Sequence[str] = ()
        """Jobs that were to be forgotten by an expiry that has failed."""
        self._expiry_outage = Outage(log, "nothing can be given up for now")
        self._thorough_at = 0.0
        """When housekeeping looks next for what is seldom there."""
        self._housekeeping = Housekeeping(self._clean, idle_seconds=IDLE_SECONDS)

    @property
    def shared(self) -> PostgresShared:
        """What this node does with the others."""
        return self._shared

    @property
    def outlasts_process(self) -> bool:
        """Whether what is stored survives the end of the process: under each setting."""
        return True

    @property
    def silent_seconds(self) -> float:
        """For how long a group has been under way, and no call of any connection was answered."""
        return min(super().silent_seconds, trio.current_time() - self._membership.answered)

    # -- opening and closing

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        with ExitStack() as threads:
            for thread in (self._writer, *self._readers, self._between):
                threads.enter_context(thread)
            await self._open()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._housekeeping.run, name="store housekeeping")
                nursery.start_soon(self._wake_ups.run, name="store wake-ups")
                nursery.start_soon(self._end_hold_ups, name="store hold-ups")
                yield
                nursery.cancel_scope.cancel(reason="the store is being closed")

    async def _open(self) -> None:
        membership = self._membership
        threads = (self._writer, *self._readers)
        processes = [await thread.run(_process) for thread in threads]
        _checks.check_pooling(processes, membership.address)
        await self._writer.run(lambda _: check_room(membership, OTHER_CONNECTIONS))
        await self._writer.run(self._join)
        log.info(
            "node joined", extra={"number": membership.node, "database": str(membership.address)}
        )
        for thread in threads:
            await thread.run(lambda db: set_up(db, membership))
        self._lines.node = membership.node
        self._lines.idle[:] = self._readers
        self._housekeeping.wake()

    def _join(self, db: Database) -> None:
        """Become a node."""
        membership = self._membership
        address = membership.address
        _checks.check_server(db, address)
        _checks.check_writable(db, address)
        _checks.check_schema(db, address)
        _checks.check_rights(db, address)
        _checks.check_clock(db, address)
        _checks.warn_of_losses(db, address)
        membership.node, self._committed = _nodes.join(
            db, address, membership.name, __version__, self.shared.resume_window_seconds
        )
        membership.signing_key = _nodes.signing_key(db)

    async def _end_hold_ups(self) -> None:
        threads = (self._writer, self._between)
        reader = self.for_principal("", urgent=True)
        await cut_off_what_holds_up(threads, self._membership, reader)

    # -- writing

    async def _commit(self, writes: Sequence[Write]) -> frozenset[str]:
        expiries = [write for write in writes if isinstance(write, Expire)]
        committed = Committed()
        if len(writes) > len(expiries) or not writes:
            committed = await self._writer.run_timed(
                EngineCall.GROUP, lambda db: self._store_group(db, writes)
            )
            self._wake_ups.moved_at(committed.moved)
            self._wake_ups.asked_at(committed.commanded)
        for write in expiries:
            await self._expire(write)
        self._housekeeping.wake()
        return committed.refused

    def _store_group(self, db: Database, writes: Sequence[Write]) -> Committed:
        number = self._committed + 1
        doubtful, self._in_doubt = self._in_doubt, True
        group = GroupPipeline(db, self._membership.node, self._writer.let_loop_go_on)
        try:
            committed = group.store(writes, number)
        except psycopg.Error as error:
            if error.sqlstate != FENCED:
                raise
            self._look_why_fenced(db, number, doubtful=doubtful)
            committed = group.found_stored(writes)
        self._committed, self._in_doubt = number, False
        return committed

    def _look_why_fenced(self, db: Database, number: int, *, doubtful: bool) -> None:
        """Return if the group is stored already.

        Raises:
            Fenced: it is not, and never will be.
        """
        membership = self._membership
        row = db.execute(
            "SELECT committed FROM node WHERE node = %s AND state <> 'gone'", (membership.node,)
        ).fetchone()
        if row is None:
            raise membership.fence()
        if row[0] != number or not doubtful:
            raise membership.fence("the database has forgotten what this node has stored")
        # A wait for a standby that was cut off has stored the group without it. This waits for all.
        db.execute("UPDATE node SET at = at WHERE node = %s", (membership.node,))

    async def _expire(self, write: Expire) -> None:
        """Give up what is past its retention, or leave it to the next expiry."""
        write = replace(write, forgotten=[*self._still_to_forget, *write.forgotten])
        self._still_to_forget = write.forgotten
        with self._expiry_outage:
            await self._writer.transact(lambda db: expire(write, db))
            self._still_to_forget = ()

    # -- housekeeping

    async def _clean(self) -> bool:
        """Delete what was given up; return whether there is more."""
        thorough = trio.current_time() >= self._thorough_at
        if thorough:
            self._thorough_at = trio.current_time() + IDLE_SECONDS
        for _ in range(ROUND_PIECES):
            if not await self._clean_piece(thorough=thorough):
                return False
        return True

    async def _clean_piece(self, *, thorough: bool = True) -> bool:
        return await self._try(lambda db: clean_piece(db, self._membership.node, thorough=thorough))


def _process(db: Database) -> int:
    """Return the number of the server's process, as the server knows it."""
    row = db.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    number: int = row[0]
    return number
