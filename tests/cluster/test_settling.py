"""What a node takes over is settled, even if the database fails right after."""

from __future__ import annotations

import psycopg
import pytest
import trio

from arcp_trio.store.errors import StoreError
from arcp_trio.store.postgres.sharing import PostgresShared
from tests.cluster.leaving import QUICK, goes_on_at, waiting_job, where
from tests.cluster.side_by_side import runtime_over

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

AWAY_SECONDS = 0.3


async def test_a_job_is_taken_and_its_commands_cannot_be_read(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that has taken a waiting job goes on with it as soon as the database answers."""
    take_jobs, open_commands = PostgresShared.take_jobs, PostgresShared.open_commands
    away_until = 0.0

    async def take(shared, *args):
        nonlocal away_until
        found = await take_jobs(shared, *args)
        if found is not None:
            away_until = trio.current_time() + AWAY_SECONDS
        return found

    async def read(shared, known):
        if trio.current_time() < away_until:
            raise StoreError("away")
        return await open_commands(shared, known)

    monkeypatch.setattr(PostgresShared, "take_jobs", take)
    monkeypatch.setattr(PostgresShared, "open_commands", read)
    async with waiting_job(database) as (client, job_id):
        await goes_on_at("c", database, client, job_id)
    assert away_until


def give_to(database: str, name: str, job_id: str) -> None:
    """Have a job that waits be one of a node that has this name, and is no more."""
    with psycopg.connect(database) as db:
        node = db.execute(
            "INSERT INTO arcp.node (name, version) VALUES (%s, '1') RETURNING node", (name,)
        ).fetchone()
        db.execute("UPDATE arcp.job SET node = %s WHERE job_id = %s", (*(node or ()), job_id))


async def test_a_job_is_to_be_left_and_the_database_fails(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that takes over a durable job without its agent leaves it, a little later."""
    leave_jobs = PostgresShared.leave_jobs
    fails = [True, True]

    async def leave(shared, job_ids):
        if fails:
            fails.pop()
            raise StoreError("away")
        await leave_jobs(shared, job_ids)

    async with waiting_job(database) as (client, job_id):
        await trio.to_thread.run_sync(give_to, database, "c", job_id)
        monkeypatch.setattr(PostgresShared, "leave_jobs", leave)
        async with runtime_over(database, "c", limits=QUICK)[0]:
            while await where(database, job_id) is not None:  # noqa: ASYNC110 - in the database
                await trio.sleep(0.05)
        assert not fails
        await goes_on_at("d", database, client, job_id)
