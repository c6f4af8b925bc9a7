"""Listings page by page, and stores full of ended jobs."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import AsyncGenerator

from arcp_trio.store.interface import Store
from arcp_trio.store.records import Entry, JobRow, Status
from arcp_trio.store.writes import AcceptJob, FinishJob
from arcp_trio.testing import Peer
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json
from tests.flow.observing import listing


async def listed(peer: Peer, **fields: Json) -> list[Json]:
    """Return the ids of the jobs of a listing."""
    return [entry["job_id"] for entry in (await listing(peer, **fields))["jobs"]]


async def pages(peer: Peer, limit: int = 1, **fields: Json) -> AsyncGenerator[str, None]:
    """Yield the ids of all jobs, page by page."""
    cursor: Json = None
    while True:
        page = await listing(peer, limit=limit, cursor=cursor, **fields)
        for entry in page["jobs"]:
            yield entry["job_id"]
        cursor = page["next_cursor"]
        if cursor is None:
            return


def ended_jobs(store: Store, principal: str, count: int, *, later: int = 0) -> list[str]:
    """Store `count` ended jobs that were created at one time, the newest of which ended first.

    All of them ended `later` seconds after those of other calls.
    """
    ids = [new_id("job_") for _ in range(count)]
    for job_id in ids:
        row = JobRow(
            job_id=job_id,
            agent="echo@1.0.0",
            principal=principal,
            session_id="sess_gone",
            trace_id="0" * 31 + "1",
            accepted=b'{"lease":{}}',
            created_at=1e9,
        )
        store.put(AcceptJob(row, None))
    for place, job_id in enumerate(reversed(ids)):
        end = Entry(0, place, b'"', terminal=True)
        store.put(FinishJob(job_id, Status.SUCCESS, EARLIER + later + place, end))
    return ids


EARLIER = time.time() - 80_000
"""An end within the retention, and before the end of any job of a test."""


def encoded(value: object) -> str:
    """Return a value encoded as cursors are."""
    return b64encode(json.dumps(value).encode()).decode()
