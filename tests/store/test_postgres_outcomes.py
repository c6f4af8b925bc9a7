"""Groups whose outcome a node cannot know: whatever is lost on the way, each is stored once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg
import pytest
import trio

from arcp_trio import Fenced
from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.postgres import PostgresStore
from tests.cluster.line import DatabaseLine, Flow, Trap
from tests.store import databases
from tests.store.engines import Feeder, running, tail

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

GROUP = b"fence("
"""What the first message of a connection's first group says."""
SESSION_ELSEWHERE = """
    INSERT INTO arcp.session
        (session_id, principal, features, dialect, top, floor, rows, acked, log_bytes, node)
    VALUES (%s, 'bob', '', 'standard', 0, 0, 0, false, 0, 0)"""
SECONDS = 60.0
TRIES = 12
"""Tries that are made at once."""


@asynccontextmanager
async def over_a_line(url: str) -> AsyncGenerator[tuple[PostgresStore, DatabaseLine]]:
    """Run a store whose connections go over a line."""
    line = DatabaseLine(url)
    with trio.fail_after(SECONDS):
        async with tasks_beside() as nursery:
            await nursery.start(line.run)
            async with running(PostgresStore(line.url, synchronous=False)) as store:
                store.trouble_seconds = SECONDS  # a try may take long on a busy machine
                yield store, line


async def stored_in_spite_of(at: int, url: str) -> bool:
    """Store a group and cut its connection at a message; return whether there was such a message.

    What the group has is then in the store once, but for what was refused.
    """
    async with over_a_line(url) as (store, line):
        name, elsewhere = f"J{at}", f"elsewhere{at}"
        with psycopg.connect(url) as db:
            db.execute(SESSION_ELSEWHERE, (elsewhere,))
        feeder = Feeder(store)

        sprung = trio.Event()

        async def act(flow: Flow) -> None:
            sprung.set()
            await flow.cut()

        line.trap = Trap(GROUP, at, act)
        feeder.session(f"S{at}", token=name.encode())
        feeder.job(name, session_id=f"S{at}")
        feeder.log(elsewhere, top=7)
        group = feeder.emit(name, 3)
        await group.committed()
        assert group.refused == {elsewhere}
        line.trap = None
        assert store.trouble is None
        # What comes after it is stored, too, as the next group.
        await feeder.emit(name).committed()
        owed = await store.owed({name: 0}, 100, 1_000_000)
        assert [entry.tail for _, entry in owed] == [tail(name, index) for index in range(4)]
        return sprung.is_set()


async def test_a_cut_at_each_message_of_a_group() -> None:
    """A connection that is lost at any message of a group costs a try, and no write comes twice."""
    happened: list[bool] = []

    async def try_at(at: int) -> None:
        happened.append(await stored_in_spite_of(at, url))

    with databases.empty_store() as url:
        while all(happened):
            first = len(happened) + 1
            async with trio.open_nursery() as nursery:
                for at in range(first, first + TRIES):
                    nursery.start_soon(try_at, at)
    assert happened.count(True) > 10, "the trap has missed the group"


async def store_and_go_back(url: str) -> None:
    """Store a group, have the database forget it, and store another one."""
    async with running(PostgresStore(url, synchronous=False)) as store:
        await Feeder(store).session().committed()
        with psycopg.connect(url) as db:
            db.execute("UPDATE arcp.node SET committed = committed - 1")
            db.execute("SET search_path = arcp")
            db.execute("DELETE FROM session")
        await Feeder(store).session("S2", token=b"other").committed()


async def test_a_group_that_was_forgotten() -> None:
    """A node whose last group the database no longer has stores nothing more, as if fenced."""
    with databases.empty_store() as url:
        with pytest.raises(Fenced, match="forgotten"):
            await store_and_go_back(url)
        with psycopg.connect(url) as db:
            assert not db.execute("SELECT session_id FROM arcp.session").fetchall()
