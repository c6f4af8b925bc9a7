"""The reading half of the store, on connections of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

import attrs
import psycopg
import trio
from psycopg.conninfo import make_conninfo

from arcp_trio.rounds import Rounds
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.interface import Said
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.looking import SnapshotReads
from arcp_trio.store.memos import Memo
from arcp_trio.store.postgres import _durable_rows, _listing, _owed, _rows
from arcp_trio.store.postgres._address import address_of
from arcp_trio.store.postgres._checks import check_schema, check_server
from arcp_trio.store.postgres._connections import DatabaseThread, Membership
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres._snapshot import PostgresSnapshot
from arcp_trio.store.records import JobRow, KeyRow, Owed, Recovered, SessionRow
from arcp_trio.store.shared import EngineCall
from arcp_trio.store.snapshot import Snapshot

_P = ParamSpec("_P")
_T = TypeVar("_T")

READERS: Final = 2
"""Connections that read at the same time."""

RETRY_SECONDS: Final = 10.0
"""How long a read that fails is tried again: a database that starts again is there by then."""
PAUSE_SECONDS: Final = 0.1
"""Pause between two tries."""
DOUBT_SECONDS: Final = 0.5
"""How long reads fail before it is to be found out whether writes do."""


class ReadLine(Protocol):
    """A thread with a connection of its own."""

    async def run_timed(self, call: EngineCall, act: Callable[[Database], _T]) -> _T:
        """Call `act` in the thread; an error of the database is raised as a `StoreError`."""
        ...


@attrs.define(eq=False)
class ReadLines:
    """What all readers of one store share."""

    idle: list[ReadLine] = attrs.field(factory=list[ReadLine])
    """The lines on which nobody reads now; empty before the store is open."""
    rounds: Rounds = attrs.field(factory=lambda: Rounds(places=READERS))
    node: int = 0
    """The node whose rows `recover` reads."""
    doubt: Callable[[], None] = lambda: None
    """Called if a read goes on failing, or finds out that the node is gone."""


class PostgresReader(SnapshotReads):
    """The reads of a store.

    A read that fails is tried again for a while; then it raises `StoreError`.
    """

    _lines: ReadLines
    _principal = ""
    _urgent = False

    def for_principal(self, principal: str, *, urgent: bool = False) -> PostgresReader:
        """Return the same reads, done when it is the principal's turn."""
        return _ReaderInTurn(self._lines, principal, urgent=urgent)

    async def read(
        self,
        act: Callable[Concatenate[Database, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Call `act`, which executes one statement, on a connection that reads."""
        began = trio.current_time()
        while True:
            try:
                return await self._try(lambda db: act(db, *args, **kwargs))
            except Fenced:
                self._lines.doubt()  # the writer finds it out, too, and the node ends
                raise
            except StoreError:
                failing = trio.current_time() - began
                if failing >= RETRY_SECONDS:
                    raise
                if failing >= DOUBT_SECONDS:
                    self._lines.doubt()
            await trio.sleep(PAUSE_SECONDS)

    async def _try(self, act: Callable[[Database], _T]) -> _T:
        lines = self._lines
        async with lines.rounds.turn(self._principal, urgent=self._urgent):
            if not lines.idle:
                raise StoreError("the store is not open")
            line = lines.idle.pop()
            try:
                return await line.run_timed(EngineCall.READ, act)
            finally:
                lines.idle.append(line)

    async def _read_state(
        self,
        act: Callable[Concatenate[Database, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Call `act`, whose statements all see one state of the database."""

        def within(db: Database) -> _T:
            with _one_state(db):
                return act(db, *args, **kwargs)

        return await self.read(within)

    async def _see(self, act: Callable[[Snapshot], _T]) -> _T:
        return await self._read_state(lambda db: act(PostgresSnapshot(db)))

    async def recover(self) -> Recovered:
        return await self._read_state(_rows.recover, self._lines.node)

    async def stored_bytes(self) -> Mapping[str, int]:
        return await self.read(_rows.stored_bytes)

    async def session(self, session_id: str) -> SessionRow | None:
        return await self.read(_rows.session, session_id)

    async def session_of_token(self, digest: bytes) -> str | None:
        return await self.read(_rows.session_of_token, digest)

    async def owner(self, job_id: str) -> str | None:
        return await self.read(_rows.owner, job_id)

    async def job(self, job_id: str) -> JobRow | None:
        return await self.read(_rows.job, job_id)

    async def jobs(self, query: JobQuery) -> Sequence[JobRow]:
        return await self.read(_listing.jobs, query)

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        return await self.read(_rows.key, principal, key, now)

    async def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        cursors = dict(cursors)  # the caller's may change while the thread reads
        return await self.read(_owed.owed, cursors, entries, size)

    async def memos(self, job_id: str) -> Sequence[Memo]:
        return await self.read(_durable_rows.memos, job_id)

    async def memo(self, job_id: str, key: str) -> Memo | None:
        return await self.read(_durable_rows.memo, job_id, key)

    async def said(self, job_id: str, index: int) -> Said:
        return await self._read_state(_durable_rows.said, job_id, index)


class _ReaderInTurn(PostgresReader):
    """The reads of one principal, on the lines of all."""

    def __init__(self, lines: ReadLines, principal: str, *, urgent: bool) -> None:
        self._lines = lines
        self._principal = principal
        self._urgent = urgent


@contextmanager
def _one_state(db: Database) -> Generator[None]:
    """Have all statements of the block see one state of the database."""
    with db.pipeline():  # what begins and ends it goes with its statements
        db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        try:
            yield
        finally:
            with suppress(psycopg.Error):  # which has been raised before
                # At a rollback, psycopg would give up all statements that are prepared.
                db.execute("COMMIT")


@asynccontextmanager
async def open_read_only(dsn: str, schema: str = "arcp") -> AsyncGenerator[PostgresReader]:
    """Open a store only to read it, whether or not it has nodes now; a standby will do, too.

    Raises:
        StoreError: the database cannot be reached, or has no store of this version.
    """
    address = address_of(dsn, schema)
    any_server = make_conninfo(address.conninfo, target_session_attrs="any")
    membership = Membership(attrs.evolve(address, conninfo=any_server), synchronous=False)
    line = DatabaseThread(membership, "reader")

    def check(db: Database) -> None:
        check_server(db, address)
        check_schema(db, address)

    with line:
        await line.run(check)
        yield _ReaderInTurn(ReadLines([line]), "", urgent=False)
