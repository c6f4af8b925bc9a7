"""Housekeeping: the durable store gives space back and keeps its write-ahead log short."""

# ruff: noqa: ASYNC240 - no other task waits while a test looks at a file

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
import trio

from arcp_trio.store import housekeeping
from arcp_trio.store.records import Entry, Inline
from arcp_trio.store.sqlite import SqliteStore, _cleaning, _file, engine
from arcp_trio.store.writes import AppendJournal, DropSession, MoveFloor, TrimJournal
from tests.store.engines import Feeder, row_counts, running

MIB = 1024 * 1024
SAID = b"x" * 8_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of `store`."""
    return tmp_path / "arcp.db"


@pytest.fixture
async def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[SqliteStore, None]:
    """A running store with short pauses between rounds of housekeeping."""
    monkeypatch.setattr(housekeeping, "PAUSE_SECONDS", 0.01)
    with trio.fail_after(60):
        async with running(SqliteStore(path, synchronous="OFF")) as running_store:
            yield running_store


async def emit(store: SqliteStore, job_id: str, start: int, stop: int) -> None:
    """Append large entries to a job's journal, several in each group."""
    for index in range(start, stop):
        store.put(AppendJournal(job_id, Entry(index, index + 1, SAID)))
        if index % 20 == 19:
            await store.flushed()
    await store.flushed()


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Poll until a condition is true."""
    while not await true():  # noqa: ASYNC110 - only the file knows
        await trio.sleep(0.01)


async def until_tidy(store: SqliteStore, expected: dict[str, int]) -> None:
    """Wait until the tables have exactly these numbers of rows."""
    await store.flushed()

    async def tidy() -> bool:
        return await store._read(row_counts) == expected

    await until(tidy)


async def until_size(path: Path, least: int, most: int) -> None:
    """Wait until the file has a size within these bounds."""

    async def fits() -> bool:
        return least <= path.stat().st_size <= most

    await until(fits)


@pytest.mark.parametrize("way", ["expired", "trimmed"])
async def test_what_is_gone_gives_its_space_back(store: SqliteStore, path: Path, way: str) -> None:
    """Journals past their retention or bound give their space back; the rest can be read."""
    feeder = Feeder(store)
    feeder.job("K")
    await emit(store, "K", 0, 100)
    feeder.job("J")
    await emit(store, "J", 0, 4_000)
    await until_size(path, 30 * MIB, 100 * MIB)
    if way == "expired":
        feeder.finish("J")
        feeder.expire(before=1.0)
    else:
        store.put(TrimJournal("J", 4_000))
    await until_size(path, 0, 10 * MIB)
    assert len(await store.owed({"K": 0}, 1_000, 100 * MIB)) == 100
    await emit(store, "K", 100, 110)
    assert len(await store.owed({"K": 0}, 1_000, 100 * MIB)) == 110


async def test_acknowledged_numbers_leave_the_log(store: SqliteStore) -> None:
    """Batches up to the floor are deleted, and later ones kept."""
    feeder = Feeder(store)
    feeder.session()
    for seq in range(1, 1_001):
        feeder.log(items=[Inline(seq, b"x")], top=seq)
        await store.flushed()
    store.put(MoveFloor("S", 300, acked=True))
    await until_tidy(store, {"session": 1, "token": 1, "share": 1, "log": 700})
    store.put(MoveFloor("S", 999, acked=True))
    await until_tidy(store, {"session": 1, "token": 1, "share": 1, "log": 1})


async def test_sessions_and_jobs_that_go_leave_no_row(store: SqliteStore) -> None:
    """Forgotten sessions and jobs leave no row in any table."""
    feeder = Feeder(store)
    for number in range(50):
        name = f"J{number}", f"S{number}"
        feeder.session(name[1], token=name[1].encode())
        feeder.job(name[0])
        feeder.emit(name[0], 20)
        feeder.watch(name[1], name[0])
        feeder.finish(name[0])
    await store.flushed()
    feeder.expire(before=1.0)
    for number in range(50):
        store.put(DropSession(f"S{number}"))
    await until_tidy(store, {})
    feeder.job("J")
    feeder.emit("J", 3)
    feeder.session("S")
    rows = dict.fromkeys(["job", "journal", "submitter", "session", "token", "share"], 1)
    await until_tidy(store, rows)


async def test_clearing_away_does_not_hold_up_commits(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit waits for one piece of the cleaning at most."""
    pieces = 0

    def counted(db: sqlite3.Connection) -> bool:
        nonlocal pieces
        pieces += 1
        return _cleaning.clean_piece(db)

    feeder = Feeder(store)
    feeder.job("J")
    await emit(store, "J", 0, 2_000)
    monkeypatch.setattr(engine, "clean_piece", counted)
    monkeypatch.setattr(_cleaning, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(_cleaning, "PIECE_ROWS", 1)
    await store.put(TrimJournal("J", 2_000)).committed()
    waited: list[int] = []
    while "journal" in await store._read(row_counts):
        group = feeder.job(f"K{len(waited)}")
        await group.taken.wait()
        before = pieces
        await group.committed()
        waited.append(pieces - before)
    assert pieces >= 100
    assert len(waited) > 10
    assert max(waited) <= 3


async def test_the_write_ahead_log_starts_over(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write-ahead log starts over, even if commits come without a pause."""
    monkeypatch.setattr(engine, "WAL_PAGES", 16)
    Feeder(store).job("J")
    await emit(store, "J", 0, 20)
    log = path.with_name("arcp.db-wal")
    began = salt(log)
    start = 20
    while salt(log) == began:
        await emit(store, "J", start, start + 20)
        start += 20


def salt(log: Path) -> bytes:
    """Return the salt of a write-ahead log, which changes when it starts over."""
    return log.read_bytes()[16:24]


async def test_commits_wait_for_a_write_ahead_log_that_grew_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without housekeeping, commits keep the write-ahead log within its bound."""
    monkeypatch.setattr(housekeeping, "PAUSE_SECONDS", 1_000)
    monkeypatch.setattr(_file, "MAX_WAL_PAGES", 64)
    log = path.with_name("arcp.db-wal")
    longest = 0
    async with running(SqliteStore(path, synchronous="OFF")) as store:
        Feeder(store).job("J")
        for start in range(0, 1_000, 20):
            await emit(store, "J", start, start + 20)
            longest = max(longest, log.stat().st_size)
    assert longest < MIB
    assert path.stat().st_size > 7 * MIB


async def test_an_idle_store_leaves_the_disk_alone(store: SqliteStore, path: Path) -> None:
    """An expiry that finds nothing does not write to the disk."""
    feeder = Feeder(store)
    feeder.job()
    await feeder.finish().committed()
    await until_tidy(store, {"job": 1, "journal": 1, "submitter": 1, "share": 1})

    async def counter() -> int:
        changes: int = await store._read(lambda db: db.execute("PRAGMA data_version").fetchone()[0])
        return changes

    before = await counter()
    for _ in range(3):
        await feeder.expire().committed()
    assert await counter() == before
    await feeder.expire(before=1.0).committed()
    assert await counter() > before


@pytest.mark.logs_error("housekeeping failed")
async def test_a_fault_in_housekeeping_ends_nothing(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error in housekeeping is logged, and housekeeping goes on."""
    failed = False

    def fail(_: sqlite3.Connection) -> bool:
        nonlocal failed
        failed = True
        raise RuntimeError("a fault")

    async def has_failed() -> bool:
        return failed

    feeder = Feeder(store)
    monkeypatch.setattr(housekeeping, "FAILED_PAUSE_SECONDS", 0.01)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "clean_piece", fail)
        feeder.session("S")
        feeder.log(items=[Inline(1, b"x")], top=1)
        await until(has_failed)
        store.put(DropSession("S"))
        await store.flushed()
    await until_tidy(store, {})
