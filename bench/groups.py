"""Groups of events, stored one after the other: by SQLite and by PostgreSQL, in turns."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

import trio

from arcp_trio.store.interface import Store
from arcp_trio.store.postgres import PostgresStore
from arcp_trio.store.records import Entry, JobRow, Range, SessionRow
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.store.writes import AcceptJob, AppendJournal, AppendLog, PutSession
from bench.figures import Extent, Figure
from tests.postgres_server import PostgresServer

GROUPS: Final = ((1, 1), (64, 1), (1_024, 1), (64, 16), (1_024, 64))
"""Events of a group, and the sessions that they are for, each with a job of its own."""
PIECES: Final = 20
"""How often each store has its turn."""
LEAST: Final = 3
"""Turns of a short run: the system counts processor time in hundredths of a second."""
PIECE: Final = 50
"""Groups of a turn."""
TAIL: Final = b',"type":"job.event","payload":' + b"x" * 320

_S = TypeVar("_S", bound=Store)


class _Writer:
    """Puts groups into a store, with the writes of as many events and sessions."""

    def __init__(self, store: Store, events: int, sessions: int) -> None:
        self._store = store
        self._each = events // sessions
        which = f"{events}_{sessions}"
        self._names = [(f"sess_{which}_{n}", f"job_{which}_{n}") for n in range(sessions)]
        self._length = self._row = 0

    async def begin(self) -> None:
        """Open the sessions, and accept their jobs."""
        for session, job in self._names:
            row = SessionRow(
                session_id=session,
                principal="bench",
                features=frozenset(),
                dialect="standard",
                token_digest=session.encode(),
            )
            self._store.put(PutSession(row))
            accepted = JobRow(
                job_id=job,
                agent="chatty@1.0.0",
                principal="bench",
                session_id=session,
                trace_id="0" * 32,
                accepted=b"{}",
                created_at=0.0,
                submitters=frozenset({session}),
            )
            self._store.put(AcceptJob(accepted, None))
        await self._store.flushed()

    async def write(self) -> None:
        """Put a group, and wait until it is stored."""
        first, end = self._length, self._length + self._each
        for session, job in self._names:
            for index in range(first, end):
                self._store.put(AppendJournal(job, Entry(index, index + 1, TAIL)))
            numbers = Range(first + 1, job, first, self._each)
            self._store.put(
                AppendLog(session, self._row, [numbers], end, {job: end}, watched=[], ended=[])
            )
        self._length, self._row = end, self._row + 1
        await self._store.flushed()


def groups(database: PostgresServer, extent: Extent) -> Sequence[Figure]:
    """Measure both stores, and what PostgreSQL needs."""
    return trio.run(_groups, database, max(LEAST, extent.of(PIECES)))


async def _groups(database: PostgresServer, pieces: int) -> Sequence[Figure]:
    figures: list[Figure] = []
    with TemporaryDirectory(prefix="arcp-bench-") as folder:
        sqlite = SqliteStore(Path(folder) / "arcp.db")
        async with _running(sqlite), _running(PostgresStore(database.url())) as postgres:
            for events, sessions in GROUPS:
                seconds: dict[str, list[float]] = {"SQLite": [], "PostgreSQL": []}
                writers = [_Writer(store, events, sessions) for store in (sqlite, postgres)]
                for writer in writers:
                    await writer.begin()
                    await _piece(writer)  # warms up
                began = database.processor_seconds()
                for _ in range(pieces):
                    for name, writer in zip(seconds, writers, strict=True):
                        seconds[name].append(await _piece(writer))
                spent = database.processor_seconds() - began
                row = f"a group of {_count(events, 'event')} of {_count(sessions, 'session')}"
                taken = {f"{row}: {name}": median(of) for name, of in seconds.items()}
                taken[f"{row}: PostgreSQL's time"] = spent / pieces
                figures += [
                    Figure(name, "ms", 1e3 * of / PIECE, less_is_better=True)
                    for name, of in taken.items()
                ]
    return figures


async def _piece(writer: _Writer) -> float:
    began = time.perf_counter()
    for _ in range(PIECE):
        await writer.write()
    return time.perf_counter() - began


@asynccontextmanager
async def _running(store: _S) -> AsyncGenerator[_S]:
    store.pace_seconds = 0.0  # each group is taken at once
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        nursery.cancel_scope.cancel()


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
