"""The value of a credential is in the memory of the job's node, and leaves it for no other node."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import trio

from arcp_trio import Agents, JobContext, Json
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import dumps
from tests.cluster.side_by_side import nodes_over
from tests.credentials.runtimes import LEASE
from tests.credentials.upstream import SECRET, Upstream

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 60
WORDS = "about to rotate"


def everything_stored(database: str) -> Iterator[str]:
    """Yield each row of each table, with bytes as they are, as far as they are text."""
    with psycopg.connect(database) as db:
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'arcp'").fetchall()
        for (table,) in tables:
            for row in db.execute(f"SELECT * FROM arcp.{table}".encode()):
                yield " ".join(
                    each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each)
                    for each in row
                )


async def test_a_client_elsewhere_does_not_see_it(database: str) -> None:
    """Its frames lack the value, and no row has it; at the job's node it is seen again."""
    agents, upstream, may_rotate = Agents(), Upstream(), trio.Event()

    @agents.agent("rotator")
    async def rotator(job: JobContext) -> Json:
        await job.log(WORDS)
        await may_rotate.wait()
        await job.rotate(job.credentials[0].id)
        await trio.sleep_forever()

    with trio.fail_after(SECONDS):
        async with nodes_over(database, others=[agents], provisioner=upstream) as (here, there):
            peer = await here.welcomed()
            job = await peer.submit("rotator", None, lease_request=LEASE)
            assert job["credentials"][0]["value"].startswith(SECRET)
            from_the_start = {**peer.resume_from(), "last_event_seq": 0}
            away = await there.welcomed(resume=from_the_start)
            seen: list[Frame] = [await away.expect("job.accepted")]
            may_rotate.set()
            while seen[-1]["payload"].get("body", {}).get("phase") != "credential_rotated":
                seen.append(await away.receive())
            assert "credentials" not in seen[0]["payload"]
            assert SECRET not in dumps(seen).decode()
            stored = list(everything_stored(database))
            assert any(WORDS in row for row in stored), "what is stored is found"
            assert not any(SECRET in row for row in stored)
            back = await here.welcomed(resume=away.resume_from())
            await back.send("job.subscribe", {"job_id": job["job_id"]})
            subscribed = await back.expect("job.subscribed")
            assert subscribed["payload"]["credentials"][0]["value"].startswith(SECRET)
            assert len(upstream.keys) == 2
