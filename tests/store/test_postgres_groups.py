"""A group has statements of many writes each: what comes of it is what its writes say, in order."""

from __future__ import annotations

from typing import Final

import psycopg
import pytest
from msgspec.structs import astuple, replace

from arcp_trio import MemoryStore, PostgresStore
from arcp_trio.store.interface import Store
from arcp_trio.store.memos import Durability
from arcp_trio.store.records import Entry, JobRow
from arcp_trio.store.shared_writes import ReleaseSession
from arcp_trio.store.writes import AcceptJob, PutSession
from tests.store import databases
from tests.store.engines import Feeder, job_row, read_all, running, session_row
from tests.store.scripts import Script

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SCRIPTS: Final = 5


async def entries(store: Store, job_id: str, index: int) -> list[Entry]:
    """Return a job's entries, read in as many pieces as the store wants."""
    found: list[Entry] = []
    while piece := await store.owed({job_id: index + len(found)}, 1_000, 1_000_000):
        found += [entry for _, entry in piece]
    return found


def comparable(row: JobRow | None, script: Script) -> JobRow | None:
    """Return a job without what only one engine tells, and with the submitters that matter."""
    if row is None:
        return None
    length = row.length if row.finished_at is not None else 0
    submitters = {
        name
        for name in row.submitters
        if name in script.sessions and (name, row.job_id) in script.told
    }
    return replace(row, length=length, node=None, base=0, submitters=frozenset(submitters))


async def all_of(store: Store, script: Script) -> dict[str, object]:
    """Return what a store tells of the script's sessions and jobs."""
    found: dict[str, object] = {}
    for name, plan in script.sessions.items():
        row = await store.session(name)
        assert row is not None
        found[name] = row
        found[f"replay of {name}"] = (
            await read_all(store.replay(name, row.floor, row.top, row.log_rows))
            if await store.covers(name, row.floor)
            else "trimmed"
        )
        for place in range(plan.tokens + 1):
            digest = f"{name}.{place}".encode()
            found[f"token {digest!r}"] = await store.session_of_token(digest)
    for name, job in script.jobs.items():
        found[name] = comparable(await store.job(name), script)
        told = await entries(store, name, job.base)
        found[f"entries of {name}"] = [astuple(entry) for entry in told]
        found[f"memos of {name}"] = await store.memos(name)
        found[f"key of {name}"] = await store.key("alice", name, 0.0)
        found[f"numbers of {name}"] = [await store.index_after(name, seq) for seq in range(30)]
    found["durable"] = {
        name: durability for name, (durability, _) in (await store.recover()).durable.items()
    }
    return found


@pytest.mark.parametrize("seed", range(SCRIPTS))
async def test_a_group_is_its_writes_in_order(seed: int) -> None:
    """Groups of any size leave what the same writes leave in memory, one after the other."""
    script = Script(seed)
    async with running(MemoryStore()) as memory:
        for write in script.writes:
            memory.put(write)
        await memory.flushed()
        expected = await all_of(memory, script)
    with databases.empty_store() as url:
        async with running(PostgresStore(url, synchronous=False)) as store:
            for group in script.groups():
                puts = [store.put(write) for write in group]
                await puts[-1].committed()
                assert not puts[-1].refused
            found = await all_of(store, script)
    for about, told in expected.items():
        assert found[about] == told, about


async def test_whole_seconds_and_fractions_in_one_group(url: str) -> None:
    """Windows and runtimes of both kinds are stored: some are limits, some what is left of them."""
    seconds = {"whole": 600, "fraction": 0.5, "none": None}
    async with running(PostgresStore(url, synchronous=False)) as store:
        for name, runtime in seconds.items():
            store.put(PutSession(session_row(name, token=name.encode())))
            durability = Durability(input=b"1", max_runtime=runtime)
            row = job_row(f"{name} job", session_id=name)
            store.put(AcceptJob(row, None, durability=durability))
        await store.flushed()
        for name, window in seconds.items():
            store.put(ReleaseSession(name, window or 0))
        await store.flushed()
        durable = (await store.recover()).durable
        assert {name: durable[f"{name} job"][0].max_runtime for name in seconds} == seconds
        for name in seconds:
            place = await store.shared.place(name)
            assert place is not None
            assert place.node is None


async def test_journals_are_compressed_quickly() -> None:
    """Where the server has lz4, journals are compressed with it."""
    with databases.empty_store() as url:
        async with running(PostgresStore(url, synchronous=False)) as store:
            feeder = Feeder(store)
            feeder.session()
            feeder.job()
            await feeder.emit(count=500).committed()
        with psycopg.connect(url) as db:
            asked = "SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = %s"
            has_lz4 = db.execute(asked, ("default_toast_compression",)).fetchone()
            found = db.execute("SELECT pg_column_compression(entries) FROM arcp.journal").fetchall()
    assert found[0] == (("lz4",) if has_lz4 == (True,) else ("pglz",))
