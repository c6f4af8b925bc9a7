"""Entries that the database has forgotten by a failover, at a node that follows their job."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import psycopg
import pytest
import trio
from msgspec.structs import replace

from arcp_trio import Agents, JobContext, Json
from arcp_trio.store.postgres.reader import PostgresReader
from arcp_trio.store.postgres.sharing import PostgresShared
from arcp_trio.store.records import Owed
from arcp_trio.store.shared import News
from arcp_trio.testing import Peer
from tests.cluster.counting import counted, read
from tests.cluster.side_by_side import NodeHere, nodes_over

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 60
LINES = 30


class Talker:
    """An agent that says some lines, and others once it may."""

    def __init__(self) -> None:
        self.agents = Agents()
        self.agents.agent("talker")(self.talk)
        self.may_go_on = trio.Event()

    async def talk(self, job: JobContext) -> Json:
        """Count, wait, and count on."""
        for number in range(2 * LINES):
            if number == LINES:
                await self.may_go_on.wait()
            await job.log(str(number))


@asynccontextmanager
async def followed(database: str, talker: Talker) -> AsyncGenerator[tuple[NodeHere, Peer, str]]:
    """Have a client at another node hear the first lines of a job."""
    with trio.fail_after(SECONDS):
        async with nodes_over(database, others=[talker.agents]) as (here, there):
            owner, observer = await here.welcomed(), await there.welcomed()
            job_id = (await owner.submit("talker"))["job_id"]
            request = await observer.send("job.subscribe", {"job_id": job_id, "history": True})
            await observer.answer("job.subscribed", request)
            assert counted(await read(observer, job_id, LINES), job_id) == list(range(LINES))
            yield there, observer, job_id


async def test_a_client_was_told_of_what_is_forgotten(database: str) -> None:
    """Its subscription ends with an error that says so, and its session goes on."""
    async with followed(database, Talker()) as (_, observer, job_id):
        with psycopg.connect(database) as db:
            db.execute("DELETE FROM arcp.journal WHERE last_index >= %s", (LINES // 2,))
        error = await observer.expect("session.error")
        assert error["payload"]["code"] == "RESUME_WINDOW_EXPIRED"
        assert error["payload"]["job_id"] == job_id
        assert (await observer.submit("pause", 0))["job_id"]


async def test_a_node_knew_of_what_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """It reads in vain a few times a second at most, and then hears what the job says since."""
    talker, reads = Talker(), list[int]()
    looked, nothing_there = trio.Event(), trio.Event()
    wakes, owed = PostgresShared.news, PostgresReader.owed
    forgotten = 5

    async def news(shared: PostgresShared, *asked: object) -> News:
        """Tell of entries that are not there any longer."""
        told: News = await wakes(shared, *asked)  # type: ignore[arg-type]
        looked.set()
        extents = {
            job_id: replace(extent, length=extent.length + forgotten)
            for job_id, extent in told.extents.items()
        }
        return replace(told, extents=extents)

    async def counting(
        reader: PostgresReader, cursors: Mapping[str, int], entries: int, size: int
    ) -> Sequence[Owed]:
        found = await owed(reader, cursors, entries, size)
        reads.append(len(found))
        if not found:
            nothing_there.set()
        return found

    async with followed(database, talker) as (there, observer, job_id):
        with monkeypatch.context() as patch:
            patch.setattr(PostgresShared, "news", news)
            await looked.wait()
            patch.setattr(PostgresReader, "owed", counting)
            await observer.drop()
            again = await there.welcomed(resume=observer.resume_from())
            await nothing_there.wait()
            await trio.sleep(2)
        assert reads.count(0) < 60
        talker.may_go_on.set()
        said = counted(await read(again, job_id, LINES), job_id)
        assert said == list(range(LINES, 2 * LINES))
