"""Sessions that go from one node to another in PostgreSQL: exactly one has each, and writes it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psycopg
import pytest
import trio
import trio.testing
from msgspec.structs import replace

from arcp_trio import PostgresStore
from arcp_trio.store.errors import StoreError
from arcp_trio.store.records import Inline, Mark
from arcp_trio.store.shared import UntoldJob
from arcp_trio.store.shared_writes import AskNode, ReleaseSession, TakeSession
from arcp_trio.store.writes import AcceptJob, AppendLog, Expire, PutSession, RotateToken, Write
from tests import defects
from tests.cluster.audit import audit
from tests.store.engines import job_row, running, session_row
from tests.store.nodes import ENOUGH, batch, place, shared, stored, stores

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]


async def taking(by: PostgresStore) -> TakeSession:
    """Return the write with which a node takes the session from where it is, or is said to be."""
    found = await shared(by).place("S")
    assert found is not None
    return TakeSession("S", found.node, found.moves)


async def untold(by: PostgresStore) -> Sequence[UntoldJob]:
    """Return the jobs of which the session's client is yet to be told."""
    found = await shared(by).find("S")
    assert found is not None
    return found.untold


async def stolen(by: PostgresStore, had: PostgresStore) -> bool:
    """Have one node steal the session from another one; return whether that one had it."""
    found = await shared(by).place("S")
    assert found is not None
    return await shared(by).take_when_unlocked("S", shared(had).node, found.moves)


def submitted(job_id: str = "J", *, parent: str | None = None) -> AcceptJob:
    """Return the acceptance of a job, of which the client of the session is yet to be told."""
    row = replace(job_row(job_id), submitters=frozenset(), request_id=f"request of {job_id}")
    return AcceptJob(row, None, parent=parent)


def told(job_id: str, row: int = 0) -> AppendLog:
    """Return a batch with which the watch of a job begins."""
    mark = Mark(0, row, b',"type":"job.accepted"}')
    return AppendLog("S", row, [mark], 0, cursors={job_id: 0}, watched=[job_id], ended=[])


async def test_a_parked_session_is_taken_by_one_node(database: str) -> None:
    """Of the nodes that want to take a session at once, one gets it."""
    async with stores(database, 3) as nodes:
        assert not await stored(nodes[1], TakeSession("S", None, 0)), "it is not parked"
        for _ in range(20):
            owner = await place(nodes[0])
            (had,) = [node for node in nodes if shared(node).node == owner]
            assert await stored(had, ReleaseSession("S", 100))
            take = await taking(nodes[0])
            groups = [node.put(take) for node in nodes]
            for group in groups:
                await group.committed()
            assert sorted(len(group.refused) for group in groups) == [0, 1, 1]
            (taker,) = [n for n, group in zip(nodes, groups, strict=True) if not group.refused]
            assert await place(nodes[0]) == shared(taker).node


async def test_a_node_that_starts_reads_only_the_sessions_of_its_jobs(database: str) -> None:
    """However many sessions are parked: it takes those that clients come back to, one by one."""
    async with stores(database) as (first, second):
        parked = replace(session_row(), session_id="parked", token_digest=b"another")
        assert await stored(first, PutSession(parked))
        assert await stored(first, ReleaseSession("parked", 100))
        assert not (await second.recover()).sessions
        assert await stored(first, submitted())
        assert list((await first.recover()).sessions) == ["S"]


async def test_only_the_node_of_a_session_writes_it(database: str) -> None:
    """Whatever another node writes of a session, parks it with, or accepts in it is refused."""
    async with stores(database) as (mine, other):
        writes: list[Write] = [
            batch(),
            RotateToken("S", b"fresh", (), frozenset(), "standard"),
            ReleaseSession("S", 100),
            submitted(),
        ]
        before = await mine.session("S")
        for write in writes:
            assert not await stored(other, write), write
        assert await mine.session("S") == before
        assert await place(mine) == shared(mine).node
        assert await mine.job("J") is None
        for write in (batch(), submitted()):
            assert await stored(mine, write), write


async def test_a_stolen_session_is_the_thiefs(database: str) -> None:
    """The node that had the session writes no more of it; nobody steals what has moved on."""
    async with stores(database, 3) as (first, second, third):
        assert not await stolen(second, third)
        assert await stolen(second, first)
        assert not await stolen(third, first)
        assert not await stored(first, batch())
        assert await stored(second, batch())


async def test_sessions_are_stolen_with_other_writes(database: str) -> None:
    """A theft is a write like any other, unless the session has moved on or its row is locked."""
    async with stores(database, 3) as (first, second, third):
        late, take = await taking(third), await taking(second)
        with psycopg.connect(database) as still:
            still.execute("SELECT FROM arcp.session WHERE session_id = 'S' FOR NO KEY UPDATE")
            assert not await stored(second, take)
        assert await stored(second, take)
        assert not await stored(third, late)
        assert not await stored(first, batch())
        assert await stored(second, batch())


async def test_who_is_connected(database: str) -> None:
    """A node has connections until it ends."""
    async with stores(database) as (first, second):
        assert await shared(second).is_connected(shared(first).node)
        async with running(PostgresStore(database, node="short")) as short:
            number = shared(short).node
            assert await shared(second).is_connected(number)
        with trio.fail_after(ENOUGH):
            while await shared(second).is_connected(number):  # noqa: ASYNC110 - no event tells
                await trio.sleep(0.01)


async def test_a_theft_that_comes_too_late_takes_nothing(database: str) -> None:
    """A session that has left its node and come back there stays: a client has it awake again."""
    async with stores(database) as (first, second):
        found = await shared(second).place("S")
        assert found is not None
        assert found.node == shared(first).node
        assert await stored(first, ReleaseSession("S", 100))
        assert await stored(first, await taking(first))
        assert not await shared(second).take_when_unlocked("S", found.node, found.moves)
        assert await stored(first, batch())
        assert await stolen(second, first)


async def test_a_session_that_another_node_is_about_to_have_is_waited_for(database: str) -> None:
    """A node that moves a session is not cut off: the one that wants it, too, finds it moved."""
    async with stores(database) as (first, second):
        taken: list[bool] = []

        async def take() -> None:
            taken.append(await shared(second).take_when_unlocked("S", shared(first).node, 0))

        with psycopg.connect(database, application_name="arcp/77") as third:
            third.execute("UPDATE arcp.session SET moves = moves + 1 WHERE session_id = 'S'")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(take)
                await trio.sleep(0.1)
                assert not taken
                third.commit()
        assert taken == [False]
        assert await place(second) == shared(first).node


async def test_what_waits_for_a_lock_delays_no_wake_up(database: str) -> None:
    """While a node waits for the row of one that it adopts, a command of it is heard of at once."""
    async with stores(database) as (asked, asker):
        with psycopg.connect(database) as db:  # has its locks until the end of the block
            db.execute("INSERT INTO arcp.node (name, version) VALUES ('dead', '1')")
            db.execute("INSERT INTO arcp.beat SELECT node FROM arcp.node WHERE name = 'dead'")
            db.commit()
            db.execute("SELECT FROM arcp.node WHERE name = 'dead' FOR UPDATE")
            (dead,) = [each for each in await shared(asker).nodes() if each.name == "dead"]
            over = trio.Event()

            async def adopt() -> None:
                with suppress(StoreError):
                    await shared(asker).adopt(dead)
                over.set()

            async with trio.open_nursery() as nursery:
                await shared(asked).asked()  # of whatever came before it listened
                nursery.start_soon(adopt)
                await trio.testing.wait_all_tasks_blocked()
                await stored(asker, AskNode(1, "release", "S", b"0"))
                await shared(asked).asked()
                assert not over.is_set()
                nursery.cancel_scope.cancel()


async def test_the_windows_clock_is_that_of_the_database(database: str) -> None:
    """Each node reads how long a session can still be resumed; a taken one has no window."""
    async with stores(database) as (first, second):
        await stored(first, ReleaseSession("S", 100))
        found = await shared(second).place("S")
        assert found is not None
        assert found.seconds is not None
        assert 100 - ENOUGH < found.seconds <= 100
        await stored(second, await taking(second))
        found = await shared(first).place("S")
        assert found is not None
        assert (found.node, found.seconds) == (shared(second).node, None)


async def test_a_job_is_untold_until_its_promise_is_in_the_log(database: str) -> None:
    """A node that takes a session finds the jobs of which the client has yet to be told."""
    async with stores(database) as (first, second):
        await stored(first, submitted("J1"))
        await stored(first, told("J1"))
        await stored(first, submitted("J2"))
        await stored(first, submitted("J3", parent="J2"))
        await stolen(second, first)
        job = UntoldJob("J2", job_row("J2").accepted, "request of J2")
        assert await untold(second) == [job]
        assert await stored(second, told("J2", row=1))
        assert await untold(second) == []


async def test_a_job_is_either_refused_or_found_untold(database: str) -> None:
    """However a theft and an acceptance meet, no job is accepted of which nobody is told."""
    async with stores(database) as (first, second):
        here, there = first, second
        for n in range(40):
            found: list[str] = []

            async def steal(
                here: PostgresStore, there: PostgresStore, found: list[str], n: int
            ) -> None:
                await trio.sleep(n % 8 / 2_000)
                if not await stored(there, await taking(there)):  # the acceptance has it locked
                    assert await stolen(there, here)
                found += [job.job_id for job in await untold(there)]

            async with trio.open_nursery() as nursery:
                nursery.start_soon(steal, here, there, found, n)
                accepted = await stored(here, submitted(f"J{n}"))
            assert accepted == (f"J{n}" in found)
            here, there = there, here


async def number_at_two_nodes(database: str) -> None:
    """Have a session stolen, and numbered by both nodes; check what is stored then."""
    async with stores(database) as (first, second):
        await stolen(second, first)
        one, two = Inline(1, b"one"), Inline(2, b"two")
        late = AppendLog("S", 0, [one], 1, cursors={}, watched=[], ended=[])
        await stored(first, late)
        await stored(second, AppendLog("S", 0, [one, two], 2, cursors={}, watched=[], ended=[]))
    await trio.to_thread.run_sync(audit, database)


async def test_numbers_of_two_nodes_are_those_of_one(database: str) -> None:
    """A number that a node has taken before it lost the session is not stored behind its back."""
    await number_at_two_nodes(database)


async def test_a_session_that_two_nodes_write_is_found_out(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """The check above fails if a node can write a session that another one has."""
    defects.write_sessions_of_other_nodes(monkeypatch)
    with pytest.raises(AssertionError, match="has 1 where 2 is due"):
        await number_at_two_nodes(database)


async def test_of_too_many_parked_sessions_the_oldest_go(database: str) -> None:
    """A principal keeps the sessions that were parked last, of whichever node they were."""
    async with stores(database) as (first, second):
        for n in range(1, 5):
            store = (first, second)[n % 2]
            await stored(store, PutSession(session_row(f"S{n}", token=b"%d" % n)))
            await stored(store, ReleaseSession(f"S{n}", 100))
        await stored(first, Expire(0, 0, 0, parked_sessions=2))
        places = {name: await shared(second).place(name) for name in ("S", "S1", "S2", "S3", "S4")}
        left = {name for name, place in places.items() if place is not None and not place.over}
        assert left == {"S", "S3", "S4"}, "a session that is awake does not count"
