"""What a dead node has left goes to one other node, whole, and nothing of it is lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import psycopg
import pytest
import trio

from arcp_trio import Fenced, PostgresStore
from arcp_trio.store.errors import StoreError
from arcp_trio.store.nodes import NodeRow, NodeState
from arcp_trio.store.postgres import _adopting
from arcp_trio.store.postgres._connections import member_transaction
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.records import CredentialRow, CredentialState, Entry, Recovered, Status
from arcp_trio.store.shared_writes import AskNode
from arcp_trio.store.writes import AcceptJob, FinishJob, KeepCredentials, PutSession
from tests import defects
from tests.store.engines import job_row, session_row, tail

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]


@asynccontextmanager
async def opened(database: str, *names: str) -> AsyncGenerator[list[PostgresStore]]:
    """Open a store for each of these nodes, without a runtime."""
    await trio.to_thread.run_sync(make_schema, database, None)
    stores = [PostgresStore(database, node=name) for name in names]
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for store in stores:
                await nursery.start(store.run)
            yield stores
            nursery.cancel_scope.cancel()


async def row_of(store: PostgresStore, name: str) -> NodeRow:
    """Return the row of a node that is not gone."""
    rows = await store.shared.nodes()
    return next(row for row in rows if row.name == name and row.state != NodeState.GONE)


async def at_work(store: PostgresStore) -> None:
    """Store a session, a job that runs, one that has ended, and a credential."""
    store.put(PutSession(session_row()))
    for name in ("J", "K", "L"):
        store.put(AcceptJob(job_row(name), None))
    end = Entry(0, 1, tail("L", 0), terminal=True)
    store.put(FinishJob("L", Status.SUCCESS, 1.0, end))
    credential = CredentialRow(
        row_id="C", order_id="O", job_id="J", principal="alice", state=CredentialState.LIVE
    )
    await store.put(KeepCredentials([credential])).committed()


async def test_one_node_takes_all(database: str) -> None:
    """Jobs that have not ended, credentials and commands are the other's; sessions are parked."""
    async with opened(database, "a", "b", "c") as (a, b, c):
        await at_work(a)
        await c.put(AskNode(1, "cancel", "J", b"{}")).committed()
        found = await b.shared.adopt(await row_of(b, "a"))
        assert found is not None
        assert [row.job_id for row in found.unfinished] == ["J", "K"]
        assert [row.row_id for row in found.credentials] == ["C"]
        assert [each.about for each in await b.shared.open_commands(())] == ["J"]
        place = await b.shared.place("S")
        assert place is not None
        assert place.node is None
        assert not place.over
        states = {row.name: row.state for row in await b.shared.nodes()}
        assert states == {"a": NodeState.GONE, "b": NodeState.UP, "c": NodeState.UP}


async def adopted_twice(database: str) -> object:
    """Have two nodes adopt a third one at once; return what the later one gets."""
    async with opened(database, "a", "b", "c") as (a, b, c):
        await at_work(a)
        dead = await row_of(b, "a")
        late = list[object]()

        async def adopt_late() -> None:
            late.append(await c.shared.adopt(dead))

        with within(database) as db:
            async with trio.open_nursery() as nursery:
                with db.transaction():
                    taken = _adopting.adopt(db, b.shared.node, dead, 600)
                    nursery.start_soon(adopt_late)
                    await waits_for_a_lock(database)
        assert taken is not None
        assert taken.jobs == {"J", "K"}
        return late[0]


async def test_two_takers(database: str) -> None:
    """If two nodes adopt a third one at once, the later node waits, and gets nothing."""
    assert await adopted_twice(database) is None


async def test_two_takers_without_a_lock_are_found(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both count it as theirs if neither locks the row of the node before it looks."""
    defects.adopt_without_a_lock(monkeypatch)
    assert await adopted_twice(database) is not None


@contextmanager
def within(database: str) -> Generator[Database]:
    """Connect as a node does."""
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("SET search_path = arcp")
        yield db


async def waits_for_a_lock(database: str) -> None:
    """Wait until a transaction waits for the lock of another one."""

    def somebody_waits() -> bool:
        with within(database) as db:
            found = db.execute(
                "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                " AND datname = current_database()"
            )
            return found.fetchone() is not None

    while not await trio.to_thread.run_sync(somebody_waits):  # noqa: ASYNC110
        await trio.sleep(0.01)


async def test_a_sign_of_life_at_the_last_moment(database: str) -> None:
    """A node that has beaten since it was judged is not adopted."""
    async with opened(database, "a", "b") as (a, b):
        await at_work(a)
        dead = await row_of(b, "a")
        beaten = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.shared.beat, 60, lambda _: beaten.set(), lambda: None)
            await beaten.wait()
            nursery.cancel_scope.cancel()
        assert await b.shared.adopt(dead) is None
        assert (await row_of(b, "a")).beats == dead.beats + 1


async def test_the_answer_to_the_commit_is_lost(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that cannot know whether it has adopted another one finds out, and has it all."""
    async with opened(database, "a", "b") as (a, b):
        await at_work(a)
        dead = await row_of(b, "a")
        line = b.shared._line
        transact = line.transact

        async def lose_the_answer(act):
            monkeypatch.undo()
            await transact(act)
            raise StoreError("no answer")

        monkeypatch.setattr(line, "transact", lose_the_answer)
        with pytest.raises(StoreError):
            await b.shared.adopt(dead)
        found = await b.shared.adopt(dead)
        assert found is not None
        assert [row.job_id for row in found.unfinished] == ["J", "K"]


async def test_the_commit_is_still_under_way(database: str) -> None:
    """A node asks again while the server is not done with its first try: it waits, and has it all.

    The jobs would be nobody's otherwise: in the database this node's, which does not know of them.
    """
    async with opened(database, "a", "b") as (a, b):
        await at_work(a)
        dead = await row_of(b, "a")
        found = list[Recovered | None]()

        async def ask_again() -> None:
            found.append(await b.shared.adopt(dead))

        with within(database) as db:
            async with trio.open_nursery() as nursery:
                with member_transaction(db, b.shared.node):  # its connection is lost
                    b.shared._take_over(dead, db)
                    nursery.start_soon(ask_again)
                    with trio.move_on_after(10):
                        await waits_for_a_lock(database)
        assert found[0] is not None
        assert [row.job_id for row in found[0].unfinished] == ["J", "K"]


async def test_the_commit_fails(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose transaction has failed has adopted nobody, and may try again."""
    async with opened(database, "a", "b") as (a, b):
        await at_work(a)
        dead = await row_of(b, "a")
        line = b.shared._line
        transact = line.transact

        async def fail_at_the_end(act):
            monkeypatch.undo()

            def and_fail(db):
                act(db)
                raise StoreError("the server has crashed")

            await transact(and_fail)

        monkeypatch.setattr(line, "transact", fail_at_the_end)
        with pytest.raises(StoreError):
            await b.shared.adopt(dead)
        assert await b.shared.adopt(dead) is None
        assert await b.shared.adopt(dead) is not None


async def test_a_start_under_the_same_name_takes_all_at_once(database: str) -> None:
    """It waits for nothing, and the older one is told so at its next call."""
    async with opened(database, "a") as (older,), trio.open_nursery() as nursery:
        await at_work(older)
        newer = PostgresStore(database, node="a")
        await nursery.start(newer.run)
        found = await newer.recover()
        assert [row.job_id for row in found.unfinished] == ["J", "K"]
        assert [row.row_id for row in found.credentials] == ["C"]
        with pytest.raises(Fenced):
            await older.shared.nodes()
        nursery.cancel_scope.cancel()


async def test_two_start_under_one_name_at_once(database: str) -> None:
    """The later one waits for the other, and takes over from it."""
    async with opened(database, "b") as (b,), trio.open_nursery() as nursery:
        newest = PostgresStore(database, node="a")
        with within(database) as db:
            async with trio.open_nursery() as starting:
                with db.transaction():
                    db.execute("INSERT INTO node (name, version) VALUES ('a', '1')")
                    starting.start_soon(nursery.start, newest.run)
                    await waits_for_a_lock(database)
        states = [row.state for row in await b.shared.nodes() if row.name == "a"]
        assert states == [NodeState.UP, NodeState.GONE]
        assert (await row_of(b, "a")).node == newest.shared.node
        nursery.cancel_scope.cancel()


async def test_a_node_that_leaves_in_order(database: str) -> None:
    """It is gone at once, unless jobs are left, which another node has to adopt."""
    async with opened(database, "a", "b", "c") as (a, b, c):
        await at_work(a)
        await b.put(PutSession(session_row("T", token=b"u"))).committed()
        await a.shared.leave()
        await b.shared.leave()
        states = {row.name: row.state for row in await c.shared.nodes()}
        assert states == {"a": NodeState.UP, "b": NodeState.GONE, "c": NodeState.UP}
        place = await c.shared.place("T")
        assert place is not None
        assert place.node is None
