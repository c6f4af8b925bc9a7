"""A disk that is full or fails under the durable store, in real time."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from arcp_trio.store.errors import StoreError
from arcp_trio.store.records import Entry
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.store.writes import AppendJournal
from tests.store.engines import Feeder, running

SAID = b"x" * 100_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of `store`."""
    return tmp_path / "arcp.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore, None]:
    """A running store with a job."""
    with trio.fail_after(60):
        async with running(SqliteStore(path, synchronous="OFF")) as running_store:
            await Feeder(running_store).job().committed()
            yield running_store


def emit(store: SqliteStore, start: int, stop: int) -> None:
    """Append large entries, so that the file has to grow."""
    for index in range(start, stop):
        store.put(AppendJournal("J", Entry(index, index + 1, SAID)))


async def lengths(store: SqliteStore) -> list[int]:
    """Return the indexes of the journal's entries."""
    owed = await store.owed({"J": 0}, 1_000, 1_000_000_000)
    return [entry.index for _, entry in owed]


def pages(store: SqliteStore, most: int | None = None) -> int:
    """Return how many pages the file has, and let it have no more than `most`."""
    if most is not None:
        store._writer.execute(f"PRAGMA max_page_count = {most}")
    count: int = store._writer.execute("PRAGMA page_count").fetchone()[0]
    return count


@contextmanager
def no_file_may_grow_beyond(size: int) -> Generator[None]:
    """Make the operating system refuse writes beyond `size` bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.logs_error("store in trouble, .*arcp.db: database or disk is full")
async def test_a_full_disk_is_waited_out(store: SqliteStore) -> None:
    """After a full disk has space again, all that was put is stored in order; reads go on."""
    pages(store, most=pages(store) + 30)
    emit(store, 0, 5)
    await store.troubled()
    emit(store, 5, 10)
    assert store.full
    assert await lengths(store) == []
    assert await store.job("J") is not None
    pages(store, most=1_000_000)
    await store.recovered()
    await store.flushed()
    assert await lengths(store) == list(range(10))


@pytest.mark.logs_error("store in trouble, .*: disk I/O error")
async def test_a_write_that_fails_half_way_is_waited_out(store: SqliteStore, path: Path) -> None:
    """A write that failed half-way is repeated later, once and whole."""
    with no_file_may_grow_beyond(300_000):
        emit(store, 0, 5)
        await store.troubled()
    await store.recovered()
    emit(store, 5, 10)
    await store.flushed()
    assert await lengths(store) == list(range(10))
    assert await store._read(lambda db: db.execute("PRAGMA quick_check").fetchall()) == [("ok",)]


@pytest.mark.logs_error("store in trouble, .*: database is locked")
async def test_a_locked_file_is_waited_out(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that another program has locked is waited for."""
    store._writer.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    emit(store, 0, 5)
    await store.troubled()
    other.close()
    await store.recovered()
    await store.flushed()
    assert await lengths(store) == list(range(5))


class Unsure(sqlite3.Connection):
    """A connection that commits, and then raises."""

    lies = 0

    def execute(self, sql: str, *args: object) -> sqlite3.Cursor:
        """Execute."""
        cursor = super().execute(sql, *args)  # type: ignore[arg-type]
        if sql == "COMMIT" and self.lies:
            self.lies -= 1
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


@pytest.mark.logs_error("store in trouble, .*: disk I/O error")
@pytest.mark.parametrize("lies", [1, 3])
async def test_a_group_of_unknown_outcome_is_stored_once(
    path: Path, lies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that succeeded, but raised, is not repeated."""
    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Unsure))
    async with running(SqliteStore(path)) as store:
        assert isinstance(store._writer, Unsure)
        await Feeder(store).job().committed()
        store._writer.lies = lies
        emit(store, 0, 3)
        await store.troubled()
        await store.recovered()
        emit(store, 3, 5)
        await store.flushed()
        assert await lengths(store) == list(range(5))


async def test_a_read_that_fails_says_so(store: SqliteStore, path: Path) -> None:
    """A read of a damaged part raises StoreError; other reads succeed."""
    emit(store, 0, 5)
    await store.flushed()
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        content = file.read()
        file.seek(0)
        file.write(content.replace(SAID[:2_000], b"\xff" * 2_000))
    with pytest.raises(StoreError, match=r"arcp\.db: database disk image is malformed"):
        await store.owed({"J": 0}, 1_000, 1_000_000_000)
    assert await store.job("J") is not None


async def test_a_mistake_of_the_program_is_no_trouble(path: Path) -> None:
    """An error of the program is not retried: it ends the writer."""
    store = SqliteStore(path, synchronous="OFF")
    Feeder(store).job()
    Feeder(store).job()
    ended = False
    try:
        await store.run()
    except* sqlite3.IntegrityError:
        ended = True
    assert ended
    async with running(SqliteStore(path)) as again:
        assert await again.job("J") is None
