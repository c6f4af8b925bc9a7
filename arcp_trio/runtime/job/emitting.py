"""How an event gets into a job's journal: checked, encoded and counted in one step (§8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from arcp_trio.runtime.job import spending
from arcp_trio.runtime.job.streamed_result import StreamedResult
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.wire import events
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arcp_trio.runtime.job.job import Job
    from arcp_trio.wire.json import Json

EMITS_PER_CHECKPOINT = 64
"""An emit gives way to other tasks this often; else it only looks for cancellation."""


async def emit(job: Job, kind: str, body: Mapping[str, Json]) -> None:
    """Add an event to the journal in one step; then give way, or wait for the store."""
    add_event(job, kind, body)
    await give_way(job)


def add_event(job: Job, kind: str, body: Mapping[str, Json]) -> None:
    """Add an event to the journal, and count what it says was spent."""
    payload = _encoded(job, kind, body)
    if kind == "result_chunk" and not _take_chunk(job, body):
        return
    spent = spending.charge(job, body) if kind == "metric" else None
    job.journal.append("job.event", payload, feature=events.feature_of(kind))
    if spent is not None:
        for each, left in spending.changed(job, spent):
            add_event(each, "metric", left)


def add_event_with_holes(job: Job, kind: str, body: Mapping[str, Json]) -> None:
    """Add an event whose secrets are filled in as it is sent."""
    job.journal.append("job.event", _encoded(job, kind, body), holes=True)


def _encoded(job: Job, kind: str, body: Mapping[str, Json]) -> bytes:
    payload = events.encode_event(kind, body, rfc3339(job.core.clock.now()))
    if len(payload) > job.most_bytes:
        most = job.core.limits.frame_bytes_out
        raise job.core.metrics.refused(limit_hit("frame_bytes_out", most))
    job.refuse_if_sealed()
    return payload


def _take_chunk(job: Job, chunk: Mapping[str, Json]) -> bool:
    """Hold a chunk to its place in the result; tell whether it goes on the wire."""
    if job.streamed is None:
        job.streamed = StreamedResult(chunk["result_id"])
    job.streamed.take(job, chunk)
    return job.streams


async def give_way(job: Job, *, at_once: bool = False) -> None:
    """Have an agent that has emitted wait where it must, and let others have their turn."""
    job.emits += 1
    each: Job | None = job
    while each is not None:  # what it spends is also told in the journals above it
        if each.journal.over:
            await each.journal.fit()
        each = each.parent
    if job.core.store.full:
        await job.core.store.room()
    elif at_once or job.emits % EMITS_PER_CHECKPOINT == 0:
        await trio.lowlevel.checkpoint()
    else:
        await trio.lowlevel.checkpoint_if_cancelled()
