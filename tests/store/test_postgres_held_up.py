"""A node that stands still in the middle of a transaction holds up no other one for long."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

import psycopg
import pytest
import trio
from msgspec.structs import replace
from psycopg import Connection
from psycopg.pq import PipelineStatus

from arcp_trio.store.errors import StoreError
from arcp_trio.store.postgres import _held_up
from arcp_trio.store.postgres._address import DatabaseAddress
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.shared_writes import ReleaseSession
from arcp_trio.store.writes import AcceptJob
from tests.store.engines import job_row, key_row
from tests.store.nodes import batch, place, shared, stored, stores

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SOON = 4.0
"""Seconds: less than any other bound ends a wait within."""
OTHER = "arcp/77"
"""What the database knows another node's connections by."""

HOLD_SESSION = "UPDATE arcp.session SET moves = moves WHERE session_id = 'S'"
HOLD_KEY = """
    INSERT INTO arcp.key (principal, key, fingerprint, job_id, expires_at, due, node)
    VALUES ('alice', 'k', 'fingerprint', 'other', 1e10, 1e10, 77)"""


@contextmanager
def held(
    database: str, statement: str, *, by: str = OTHER, pipelined: bool = False
) -> Generator[Connection]:
    """Stand still after a statement of a transaction, for the block."""
    with psycopg.connect(database, application_name=by) as still:
        if pipelined:
            # Without a Sync, the server takes the connection for one that works.
            still.pgconn.enter_pipeline_mode()
            for each in (b"BEGIN", statement.encode()):
                still.pgconn.send_query_params(each, None)
            still.pgconn.send_flush_request()
            still.pgconn.flush()
            assert still.pgconn.pipeline_status == PipelineStatus.ON
        else:
            still.execute(statement.encode())
        try:
            yield still
        finally:
            still.close()


class Looks:
    """When the nodes here began to look for what holds them up, as far as they have found it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._begun: list[float] = []
        look = _held_up._cut_off

        def note(db: Database, address: DatabaseAddress, me: int) -> list[int]:
            began = time.monotonic()
            found = look(db, address, me)
            self._begun.append(began)
            return found

        patch.setattr(_held_up, "_cut_off", note)

    async def one_late(self) -> None:
        """Wait for a look at which what stands still from now on has done so for long enough."""
        due = time.monotonic() + 2 * _held_up.STILL_SECONDS
        while not self._begun or self._begun[-1] < due:  # noqa: ASYNC110 - a look tells nobody
            await trio.sleep(0.01)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """The looks of the nodes here."""
    return Looks(monkeypatch)


def is_cut_off(still: Connection) -> bool:
    """Return whether the server has ended a connection."""
    try:
        still.execute("SELECT 1")
    except psycopg.OperationalError:
        return True
    return False


@pytest.mark.parametrize("pipelined", [False, True])
async def test_a_group_does_not_wait_for_a_node_that_stands_still(
    *, pipelined: bool, database: str
) -> None:
    """The connection that has a row locked, as of a theft that has not ended, is cut off."""
    async with stores(database, 1) as (mine,):
        with held(database, HOLD_SESSION, pipelined=pipelined) as still:
            with trio.fail_after(SOON):
                assert await stored(mine, batch())
            assert pipelined or is_cut_off(still)


async def test_a_key_does_not_wait_for_a_node_that_stands_still(database: str) -> None:
    """A job is accepted under a key of which another node has stored only a part."""
    job = AcceptJob(job_row("J"), replace(key_row("k"), job_id="J"))
    async with stores(database, 1) as (mine,):
        with held(database, HOLD_KEY), trio.fail_after(SOON):
            assert await stored(mine, job)


async def test_a_parked_session_does_not_wait_for_a_node_that_stands_still(database: str) -> None:
    """A node that has begun to take a parked session, and stands still, does not keep it."""
    async with stores(database) as (first, second):
        assert await stored(first, ReleaseSession("S", 100))
        found = await shared(second).place("S")
        assert found is not None
        with held(database, HOLD_SESSION), trio.fail_after(SOON):
            assert await shared(second).take_when_unlocked("S", None, found.moves)
        assert await place(second) == shared(second).node


@pytest.mark.parametrize("by", ["psql", "arcp/debug"])
async def test_only_nodes_are_cut_off(by: str, looks: Looks, database: str) -> None:
    """Another program that has a row locked is waited for, although it stands still."""
    async with stores(database, 1) as (mine,):
        with held(database, HOLD_SESSION, by=by) as still:
            group = mine.put(batch())
            await looks.one_late()
            assert not is_cut_off(still)
            still.rollback()
            await group.committed()
        assert not group.refused


async def test_a_node_does_not_cut_itself_off(looks: Looks, database: str) -> None:
    """A connection of the node itself that is slow within a transaction is waited for."""
    async with stores(database, 1) as (mine,):
        with held(database, HOLD_SESSION, by=f"arcp/{shared(mine).node}") as still:
            group = mine.put(batch())
            await looks.one_late()
            still.rollback()
            await group.committed()


async def test_another_program_holds_up_only_the_session(database: str) -> None:
    """What wants a session that another program has locked fails soon; other calls go on then."""
    async with stores(database) as (first, second):
        with held(database, HOLD_SESSION, by="psql"), trio.fail_after(SOON):
            with pytest.raises(StoreError, match="has held a lock for too long"):
                await shared(second).take_when_unlocked("S", shared(first).node, 0)
            await shared(second).nodes()
