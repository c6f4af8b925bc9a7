"""The engines under test, and small values to feed them with."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import attrs
import pytest
from hypothesis import given, settings
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.interface import Replay, Store
from arcp_trio.store.memory import MemoryStore
from arcp_trio.store.postgres.engine import PostgresStore
from arcp_trio.store.queue import Group
from arcp_trio.store.records import (
    Entry,
    JobRow,
    KeyRow,
    LogItem,
    Mark,
    NumberedTail,
    Range,
    SessionRow,
    Status,
)
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.store.sqlite._cleaning import clean_piece
from arcp_trio.store.writes import (
    AcceptJob,
    AppendJournal,
    AppendLog,
    Expire,
    FinishJob,
    PutSession,
)
from tests.store import databases

S = TypeVar("S", bound=Store)
Test: TypeAlias = Callable[..., None]


@attrs.frozen
class Engine:
    """One implementation of `Store`."""

    name: str
    make: Callable[[], AbstractContextManager[Store]]
    left: Callable[[Store], Awaitable[Mapping[str, int]]]
    """Returns the sizes of all tables that traffic fills, by name, without the empty ones."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Store, None]:
        """Make a store and run its writer for the length of the block."""
        with self.make() as store:
            async with running(store):
                yield store


@asynccontextmanager
async def running(store: S) -> AsyncGenerator[S, None]:
    """Run the store's writer for the length of the block."""
    async with tasks_beside() as nursery:
        await nursery.start(store.run)
        yield store


async def _left_in_memory(store: Store) -> Mapping[str, int]:
    assert isinstance(store, MemoryStore)
    tables = attrs.asdict(store._tables, recurse=False)
    return {name: len(table) for name, table in tables.items() if table}


@contextmanager
def _in_a_file() -> Generator[Store]:
    """Make a store in a file, without the writes that only a loss of power needs."""
    with tempfile.TemporaryDirectory() as folder:
        yield SqliteStore(Path(folder) / "arcp.db", synchronous="OFF")


async def _left_in_a_file(store: Store) -> Mapping[str, int]:
    assert isinstance(store, SqliteStore)
    while await store._write(clean_piece):
        pass
    return await store._read(row_counts)


def row_counts(db: sqlite3.Connection) -> dict[str, int]:
    """Return how many rows each table has, without the empty ones."""
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT IN ('state', ?)"
    names = [name for (name,) in db.execute(tables, ("sqlite_sequence",)).fetchall()]
    counts = {n: db.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for n in names}
    return {name: count for name, count in counts.items() if count}


@contextmanager
def _in_a_database() -> Generator[Store]:
    """Make a store in an empty database, without the syncs that only a loss of power needs."""
    with databases.empty_store() as url:
        yield PostgresStore(url, synchronous=False)


async def _left_in_a_database(store: Store) -> Mapping[str, int]:
    assert isinstance(store, PostgresStore)
    while await store._clean_piece():
        pass
    return await store.read(databases.row_counts)


ENGINES = [
    Engine("memory", lambda: nullcontext(MemoryStore()), _left_in_memory),
    Engine("sqlite", _in_a_file, _left_in_a_file),
    Engine("postgres", _in_a_database, _left_in_a_database),
]

EACH_ENGINE = [
    pytest.param(each, id=each.name, marks=[pytest.mark.postgres] * (each.name == "postgres"))
    for each in ENGINES
]
"""The parameters of a test that every engine passes."""

DATABASE_EXAMPLES = 15
"""Examples of a property that are tried on a database, which takes longer to open and to empty."""


def given_each_engine(**strategies: SearchStrategy[Any]) -> Callable[[Test], Test]:
    """Have every engine pass a test with examples, which takes the engine by keyword."""

    def decorate(test: Test) -> Test:
        given_many = given(**strategies)
        many, few = given_many(test), settings(max_examples=DATABASE_EXAMPLES)(given_many(test))

        @pytest.mark.parametrize("engine", EACH_ENGINE)
        def on_engine(engine: Engine) -> None:
            (few if engine.name == "postgres" else many)(engine=engine)

        on_engine.__name__, on_engine.__doc__ = test.__name__, test.__doc__
        return on_engine

    return decorate


EACH_LOCAL_ENGINE = EACH_ENGINE[:2]
"""Those without PostgreSQL, whose windows end by its own clock, and not by a test's."""


def session_row(session_id: str = "S", *, token: bytes = b"token") -> SessionRow:
    """Return a new session."""
    return SessionRow(
        session_id=session_id,
        principal="alice",
        features=frozenset({"ack"}),
        dialect="standard",
        token_digest=token,
    )


def job_row(job_id: str = "J", *, session_id: str = "S", principal: str = "alice") -> JobRow:
    """Return a new job."""
    return JobRow(
        job_id=job_id,
        agent="a@1.0.0",
        principal=principal,
        session_id=session_id,
        trace_id="0" * 31 + "1",
        accepted=b"{}",
        created_at=0.0,
        submitters=frozenset({session_id}),
    )


def anywhere(row: JobRow | None) -> JobRow:
    """Return the row of a job without the node that has it, which most engines do not tell."""
    assert row is not None
    return replace(row, node=None)


def key_row(job_id: str = "J", *, key: str = "k", expires_at: float = 100.0) -> KeyRow:
    """Return a key that stands for a job."""
    return KeyRow(
        principal="alice",
        key=key,
        fingerprint=b"fingerprint",
        job_id=job_id,
        accepted=b"{}",
        expires_at=expires_at,
    )


def tail(job_id: str, index: int) -> bytes:
    """Return the tail of entry `index` of a job; all tails are different."""
    return f"{job_id}:{index}".encode()


class Feeder:
    """Feeds a store as the runtime does, with consecutive indexes, ordinals and batch numbers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._ordinal = 0
        self._lengths: dict[str, int] = {}
        self._rows: dict[str, int] = {}

    def job(self, job_id: str = "J", *, session_id: str = "S", key: KeyRow | None = None) -> Group:
        """Accept a job."""
        return self.accept(job_row(job_id, session_id=session_id), key)

    def accept(self, row: JobRow, key: KeyRow | None = None, parent: str | None = None) -> Group:
        """Accept the job of this row."""
        self._lengths[row.job_id] = 0
        return self.store.put(AcceptJob(row, key, parent))

    def session(self, session_id: str = "S", *, token: bytes = b"token") -> Group:
        """Open a session."""
        return self.store.put(PutSession(session_row(session_id, token=token)))

    def emit(self, job_id: str = "J", count: int = 1) -> Group:
        """Append `count` entries to a job's journal."""
        groups = [self.store.put(AppendJournal(job_id, self._entry(job_id))) for _ in range(count)]
        return groups[-1]

    def finish(self, job_id: str = "J", *, at: float = 0.0) -> Group:
        """End a job; its terminal is its last entry."""
        entry = self._entry(job_id, terminal=True)
        return self.store.put(FinishJob(job_id, Status.SUCCESS, at, entry))

    def log(
        self,
        session_id: str = "S",
        items: Sequence[LogItem] = (),
        *,
        top: int,
        cursors: Mapping[str, int] | None = None,
        watched: Sequence[str] = (),
        ended: Sequence[str] = (),
        observed: Sequence[str] = (),
    ) -> Group:
        """Append a batch to a session's log."""
        row = self._rows.get(session_id, 0)
        self._rows[session_id] = row + 1
        moved = cursors or {}
        return self.store.put(
            AppendLog(session_id, row, items, top, moved, watched, ended, observed)
        )

    def watch(
        self, session_id: str = "S", job_id: str = "J", *, observed: Sequence[str] = ()
    ) -> Group:
        """Have a session watch a job from its first entry on."""
        return self.log(session_id, top=0, cursors={job_id: 0}, watched=[job_id], observed=observed)

    def number_all(self, job_id: str = "J") -> Group:
        """Number all entries of a job for the new session S, and end the watch."""
        count = self._lengths[job_id]
        return self.log(
            "S",
            [Mark(0, 0, b"accepted"), Range(1, job_id, 0, count)],
            top=count,
            cursors={job_id: count},
            watched=[job_id],
            ended=[job_id],
        )

    def expire(
        self,
        *,
        now: float = 0.0,
        before: float = -1.0,
        jobs: int = 1_000,
        forgotten: Sequence[str] = (),
    ) -> Group:
        """Forget what is past its retention, and jobs that are to be forgotten."""
        return self.store.put(
            Expire(now=now, finished_before=before, finished_jobs=jobs, forgotten=forgotten)
        )

    def _entry(self, job_id: str, *, terminal: bool = False) -> Entry:
        index = self._lengths[job_id]
        self._lengths[job_id] += 1
        self._ordinal += 1
        return Entry(index, self._ordinal, tail(job_id, index), None, terminal)


async def read_all(replay: Replay, frames: int = 1_000) -> list[NumberedTail]:
    """Return all frames of a replay, read in pieces of at most `frames`."""
    found: list[NumberedTail] = []
    while piece := await replay.next(frames, 1_000_000):
        found += piece
    return found
