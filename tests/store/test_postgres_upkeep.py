"""Housekeeping of a database: windows, nodes and shares end, and one node at a time cleans up."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager

import psycopg
import pytest
import trio

from arcp_trio.store import housekeeping
from arcp_trio.store.postgres import _cleaning, _retention
from arcp_trio.store.postgres._retention import EXPIRING, alone
from arcp_trio.store.postgres.engine import PostgresStore
from arcp_trio.store.records import Entry, Inline
from arcp_trio.store.retention import surplus
from arcp_trio.store.writes import AppendJournal, DropSession, Expire, MoveFloor, TrimJournal
from tests import defects
from tests.store import databases
from tests.store.databases import Database
from tests.store.engines import Feeder, running

pytestmark = pytest.mark.postgres


@pytest.fixture
def admin(url: str) -> Generator[Database]:
    """A connection of somebody who looks after the database."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET search_path = arcp")
        yield db


@pytest.fixture
async def store(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[PostgresStore]:
    """A running store whose own housekeeping does nothing: the test does it."""
    monkeypatch.setattr(housekeeping, "PAUSE_SECONDS", 1_000)
    with trio.fail_after(60):
        async with running(PostgresStore(url, synchronous=False)) as running_store:
            yield running_store


async def clean(store: PostgresStore) -> None:
    """Clean up until nothing is left to do."""
    while await store._clean_piece():
        pass


@contextmanager
def busy_elsewhere(url: str, work: int) -> Generator[None]:
    """Have another node be at a work that only one may do at a time."""
    with psycopg.connect(url) as db:
        db.execute("SET search_path = arcp")
        assert alone(db, work)
        yield


# -- one at a time


async def left_to_another(url: str, admin: Database, store: PostgresStore) -> bool:
    """Have something to clean up while another node does so; return whether it is left alone."""
    feeder = Feeder(store)
    feeder.session()
    feeder.log(items=[Inline(1, b"x")], top=1)
    await store.put(DropSession("S")).committed()
    with busy_elsewhere(url, _cleaning.CLEANING):
        more = await store._clean_piece()
        return not more and databases.row_counts(admin).get("log") == 1


async def test_one_node_at_a_time_cleans_up(
    url: str, admin: Database, store: PostgresStore
) -> None:
    """While another node cleans up, this one deletes nothing, and does not wait."""
    assert await left_to_another(url, admin, store)
    await clean(store)
    assert databases.row_counts(admin) == {}


async def kept_after_two_expiries(
    url: str, store: PostgresStore, patch: pytest.MonkeyPatch, most: int
) -> int:
    """Have two nodes at once give up all finished jobs but `most`; return how many are left.

    One of them does so between the other one's counting and marking.
    """
    feeder = Feeder(store)
    names = "ABCDEFGHIJ"
    for job_id in names:
        feeder.job(job_id)
        feeder.finish(job_id)
    await store.flushed()
    write = Expire(now=0.0, finished_before=-math.inf, finished_jobs=most, forgotten=[])
    counted = surplus

    def expire_in_between(counts: dict[str, int], bound: int) -> dict[str, int]:
        patch.setattr(_retention, "surplus", counted)
        expire_elsewhere(url, write)
        return counted(counts, bound)

    patch.setattr(_retention, "surplus", expire_in_between)
    expire_elsewhere(url, write)
    return len([job_id for job_id in names if await store.job(job_id)])


def expire_elsewhere(url: str, write: Expire) -> None:
    """Expire jobs as another node does, in a transaction."""
    with psycopg.connect(url) as db:
        db.execute("SET search_path = arcp")
        db.execute("SELECT set_config('arcp.node', '0', true)")
        _retention.expire(write, db)


async def test_two_nodes_give_up_what_is_too_much_once(
    url: str, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they count and mark, as many jobs are left as may be."""
    assert await kept_after_two_expiries(url, store, monkeypatch, most=6) == 6


async def test_two_sweepers_are_found(
    url: str, admin: Database, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the locks, two nodes clean up at once, and give up more than is too much."""
    defects.sweep_beside_others(monkeypatch)
    assert await kept_after_two_expiries(url, store, monkeypatch, most=6) < 6
    assert not await left_to_another(url, admin, store)


async def test_one_node_at_a_time_counts_what_is_kept(
    url: str, admin: Database, store: PostgresStore
) -> None:
    """While another node expires jobs, this one marks only those that are to be forgotten now."""
    feeder = Feeder(store)
    for job_id in "ABC":
        feeder.job(job_id)
        feeder.finish(job_id)
    with busy_elsewhere(url, EXPIRING):
        await feeder.expire(jobs=0, forgotten=["B"]).committed()
        assert [job_id for job_id in "ABC" if await store.job(job_id)] == ["A", "C"]
    await feeder.expire(jobs=0).committed()
    assert [job_id for job_id in "ABC" if await store.job(job_id)] == []


async def test_two_nodes_that_clean_up_lose_nothing(
    url: str, admin: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes that clean up at once delete what was given up, and book it once."""
    monkeypatch.setattr(housekeeping, "PAUSE_SECONDS", 1_000)
    with trio.fail_after(60):
        async with (
            running(PostgresStore(url, node="one", synchronous=False)) as one,
            running(PostgresStore(url, node="two", synchronous=False)) as two,
        ):
            for store, names in ((one, "ABCDE"), (two, "FGHIJ")):
                feeder = Feeder(store)
                for job_id in names:
                    feeder.session(job_id, token=job_id.encode())
                    feeder.job(job_id, session_id=job_id)
                    feeder.emit(job_id, 20)
                    feeder.finish(job_id)
                    if job_id not in "EJ":
                        store.put(DropSession(job_id))
                feeder.expire(jobs=4)
                await store.flushed()
            async with trio.open_nursery() as nursery:
                for store in (one, two):
                    nursery.start_soon(clean, store)
            kept = [job_id for job_id in "ABCDEFGHIJ" if await one.job(job_id)]
            assert len(kept) == 4
            assert await one.stored_bytes() == {"alice": booked(admin)}
            assert databases.row_counts(admin)["job"] == 4


def booked(admin: Database) -> int:
    """Count what the jobs, journals and sessions of the only principal take."""
    row = admin.execute("""SELECT (SELECT sum(length(accepted) + 512) FROM job)
        + (SELECT sum(length(entries)) FROM journal)
        + (SELECT sum(log_bytes + 512) FROM session)""").fetchone()
    assert row is not None
    return int(row[0])


# -- windows


async def test_a_window_ends_by_the_clock_of_the_database(
    admin: Database, store: PostgresStore
) -> None:
    """A session past its window goes with all that it has; the numbers of its jobs stay."""
    feeder = Feeder(store)
    feeder.session()
    feeder.session("T", token=b"other")
    feeder.job()
    feeder.emit(count=2)
    feeder.finish()
    await feeder.number_all().committed()
    admin.execute("UPDATE session SET node = NULL, parked_until = now() + interval '1 hour'")
    await clean(store)
    assert await store.session("S") is not None
    admin.execute("UPDATE session SET parked_until = now() WHERE session_id = 'S'")
    await clean(store)
    assert await store.session("S") is None
    assert await store.session_of_token(b"token") is None
    assert await store.session("T") is not None
    assert [await store.index_after("J", seq) for seq in range(4)] == [0, 1, 2, 3]
    row = await store.job("J")
    assert row is not None
    assert row.last_seq == 3


async def test_a_watch_that_a_window_ends_leaves_its_last_number(
    admin: Database, store: PostgresStore
) -> None:
    """The last number of a job that runs on is known when its session's window is over."""
    feeder = Feeder(store)
    feeder.session()
    feeder.job()
    feeder.watch()
    feeder.emit(count=3)
    await feeder.log(items=[Inline(1, b"x"), Inline(2, b"y")], top=2).committed()
    admin.execute("UPDATE watch SET last_seq = 2")
    admin.execute("UPDATE session SET node = NULL, parked_until = now()")
    await clean(store)
    row = await store.job("J")
    assert row is not None
    assert row.last_seq == 2


async def test_a_window_loses_to_a_claim(url: str, admin: Database, store: PostgresStore) -> None:
    """A session that is being claimed is left alone, and housekeeping does not wait for it."""
    await Feeder(store).session().committed()
    admin.execute("UPDATE session SET node = NULL, parked_until = now()")
    with psycopg.connect(url) as claim:
        claim.execute("SET search_path = arcp")
        claim.execute("UPDATE session SET node = 1, parked_until = NULL")
        await clean(store)
        claim.commit()
    await clean(store)
    assert await store.session("S") is not None


# -- nodes


async def test_a_node_is_forgotten_a_day_after_it_is_gone(
    admin: Database, store: PostgresStore
) -> None:
    """What a node has booked outlives it, and so does the row of one that went just now."""
    await Feeder(store).job().committed()
    before = await store.stored_bytes()
    admin.execute("""INSERT INTO node (name, version, state, at)
        VALUES ('old', '1', 'gone', now() - interval '2 days'), ('new', '1', 'gone', now())""")
    admin.execute("""INSERT INTO share (principal, node, finished_jobs, stored_bytes)
        SELECT 'alice', node, 0, 1000 FROM node WHERE name = 'old'""")
    await clean(store)
    names = admin.execute("SELECT name FROM node WHERE state = 'gone'").fetchall()
    assert names == [("new",)]
    assert await store.stored_bytes() == {"alice": before["alice"] + 1000}


# -- without a pause


async def test_what_a_session_gives_up_meanwhile_is_not_forgotten(
    admin: Database, store: PostgresStore
) -> None:
    """A floor that moves while the log is cleared is seen by the next piece."""
    feeder = Feeder(store)
    feeder.session()
    for seq in range(1, 301):
        feeder.log(items=[Inline(seq, b"x")], top=seq)
    await store.flushed()
    for floor in (100, 200, 299):
        store.put(MoveFloor("S", floor, acked=True))
        await store.flushed()
        await store._clean_piece()
    await clean(store)
    assert databases.row_counts(admin)["log"] == 1


async def test_clearing_away_goes_on_in_short_pieces(
    admin: Database, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece deletes a few rows, so that reads have their turn between two pieces."""
    monkeypatch.setattr(_cleaning, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(_cleaning, "PIECE_ROWS", 4)
    Feeder(store).job()
    for index in range(40):
        store.put(AppendJournal("J", Entry(index, index + 1, b"x")))
        await store.flushed()
    await store.put(TrimJournal("J", 40)).committed()
    left: list[int] = []
    while await store._clean_piece():
        left.append(databases.row_counts(admin).get("journal", 0))
    assert left[:3] == [36, 32, 28]
    assert left[-1] == 0
