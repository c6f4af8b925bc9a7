"""Reads of a database: they outlive connections, and merge journals piece by piece."""

from __future__ import annotations

import random
import signal
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager

import psycopg
import pytest
import trio

from arcp_trio import PostgresStore
from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.errors import StoreError
from arcp_trio.store.postgres import _owed, _schema, reader
from arcp_trio.store.postgres._snapshot import PostgresSnapshot
from arcp_trio.store.records import Range
from arcp_trio.store.snapshot import Snapshot
from arcp_trio.store.writes import DropSession, TrimJournal
from tests.postgres_server import PostgresServer, own_server
from tests.store import databases
from tests.store.engines import Feeder, read_all, running

pytestmark = pytest.mark.postgres


@pytest.fixture
async def store(url: str) -> AsyncGenerator[PostgresStore]:
    """A running store."""
    with trio.fail_after(60):
        async with running(PostgresStore(url, synchronous=False)) as running_store:
            yield running_store


def cut_all(url: str) -> None:
    """End all other connections to the database."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


async def test_reads_outlive_their_connections(url: str, store: PostgresStore) -> None:
    """A read whose connection was cut is tried again on another one, in a replay, too."""
    feeder = Feeder(store)
    feeder.session()
    feeder.job()
    feeder.emit(count=4)
    await feeder.log(items=[Range(1, "J", 0, 4)], top=4, cursors={"J": 4}).committed()
    replay = store.replay("S", 0, 4, 1)
    assert len(await replay.next(2, 1_000)) == 2
    for _ in range(3):
        cut_all(url)
        assert await store.owner("J") == "alice"
    cut_all(url)
    assert [seq for seq, _ in await read_all(replay)] == [3, 4]
    cut_all(url)
    assert await store.covers("S", 0)


@pytest.fixture
def server() -> Generator[PostgresServer]:
    """A running server with an empty store."""
    with own_server() as made:
        made.start()
        with psycopg.connect(made.url()) as db:
            _schema.migrate(db, databases.SCHEMA)
        yield made


@pytest.mark.logs_error("store in trouble")
async def test_reads_wait_for_a_server_that_starts_again(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read waits while the server is away, but not for ever; what fails says where."""
    with trio.fail_after(100):
        async with running(PostgresStore(server.url())) as store:
            await Feeder(store).job().committed()
            server.stop(signal.SIGQUIT)
            store.put(DropSession("S"))
            await store.troubled()
            monkeypatch.setattr(reader, "RETRY_SECONDS", 0.2)
            with pytest.raises(StoreError, match=r"5432/postgres: the server cannot be reached"):
                await store.job("J")
            monkeypatch.setattr(reader, "RETRY_SECONDS", 100.0)
            found: list[str | None] = []

            async def read() -> None:
                found.append(await store.owner("J"))

            async with tasks_beside() as nursery:
                nursery.start_soon(read)
                server.start()
                while not found:  # noqa: ASYNC110 - the read tries again in real time
                    await trio.sleep(0.01)
            assert found == ["alice"]
            await store.recovered()


@pytest.mark.parametrize("seed", range(5))
async def test_journals_are_merged_piece_by_piece(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """However few rows are read at a time, entries come in the order of their emission."""
    monkeypatch.setattr(_owed, "JOURNAL_PAGE", 2)
    monkeypatch.setattr(_owed, "_ROWS", 3)
    dice = random.Random(seed)
    feeder = Feeder(store)
    names = [f"J{number}" for number in range(5)]
    lengths = dict.fromkeys(names, 0)
    emitted: list[tuple[str, int]] = []
    for name in names:
        feeder.job(name)
    for _ in range(80):
        name = dice.choice(names)
        feeder.emit(name)
        emitted.append((name, lengths[name]))
        lengths[name] += 1
        if dice.random() < 0.3:
            await store.flushed()  # rows have one entry, or several
    await store.flushed()
    for _ in range(30):
        watched = dice.sample(names, dice.randint(1, 5))
        cursors = {name: dice.randint(0, lengths[name] + 1) for name in watched}
        entries, size = dice.randint(1, 50), dice.choice([1, 30, 150, 1_000])
        owed = [(n, at) for n, at in emitted if n in cursors and at >= cursors[n]][:entries]
        while len(owed) > 1 and sum(len(f"{n}:{at}") for n, at in owed) > size:
            owed.pop()
        found = await store.owed(cursors, entries, size)
        assert [(name, entry.index) for name, entry in found] == owed


class FailOnce:
    """Has one of the statements of a read fail after it was executed, or the end of the read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.until = 0
        """How many statements succeed before the one that fails."""
        for name in Snapshot.__abstractmethods__:
            patch.setattr(PostgresSnapshot, name, self._failing(getattr(PostgresSnapshot, name)))
        one_state = reader._one_state

        @contextmanager
        def failing_at_the_end(db: databases.Database) -> Generator[None]:
            with one_state(db):
                yield
            self._count()

        patch.setattr(reader, "_one_state", failing_at_the_end)

    def _failing(self, statement: Callable[..., object]) -> Callable[..., object]:
        def execute(*args: object) -> object:
            result = statement(*args)
            self._count()
            return result

        return execute

    def _count(self) -> None:
        self.until -= 1
        if self.until == 0:
            raise psycopg.OperationalError("the connection is lost")


async def test_a_read_that_fails_half_way_is_made_anew(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of its statements fails, a replay leaves nothing out, and searches find it."""
    monkeypatch.setattr(reader, "PAUSE_SECONDS", 0.001)
    feeder = Feeder(store)
    feeder.session()
    items = list[Range]()
    for number, job_id in enumerate("JKL"):
        feeder.job(job_id)
        feeder.emit(job_id, 2)
        items.append(Range(1 + 2 * number, job_id, 0, 2))
    await feeder.log(items=items, top=6, cursors=dict.fromkeys("JKL", 2)).committed()
    store.put(TrimJournal("K", 1))
    await store.flushed()
    failing = FailOnce(monkeypatch)
    for failing_one in range(1, 20):
        failing.until = failing_one
        assert [seq for seq, _ in await read_all(store.replay("S", 3, 6, 1))] == [4, 5, 6]
        failing.until = failing_one
        assert not await store.covers("S", 0)
        failing.until = failing_one
        assert await store.covers("S", 3)
        failing.until = failing_one
        assert await store.index_after("L", 5) == 1
