"""What a runtime does with the jobs and sessions that an earlier one left in the store."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from arcp_trio.runtime.job import outcome
from arcp_trio.store.records import Entry, JobRow
from arcp_trio.store.writes import FinishJob
from arcp_trio.wire import envelope
from arcp_trio.wire.errors import InternalError
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.sessions import Sessions

log = logging.getLogger(__name__)


async def take_over(core: Core, sessions: Sessions) -> None:
    """End the jobs that were running, revoke their credentials, and park the sessions.

    Revocation is tried before clients are let in, and goes on later if it fails (§14).

    Nothing is added to the sessions: the jobs' new terminals make them behind, and they catch up
    when they are next used. Clients are let in only once the terminals are stored, however long the
    store is in trouble.
    """
    jobs = sessions.jobs
    found = await core.store.recover()
    jobs.go_on_from(found.ordinal)
    for row in reversed(found.unfinished):  # children before their parents
        lost = _lost(core, jobs, row)
        core.metrics.finished[lost.status] += 1
        core.store.put(lost)
    await core.store.flushed()
    await jobs.revoker.take_over(found.credentials)
    sessions.park_all(found.sessions)
    if found.sessions or found.unfinished:
        taken = {"sessions": len(found.sessions), "jobs_ended": len(found.unfinished)}
        log.info("took over from the previous runtime", extra=taken)
    core.taken_over.set()


def _lost(core: Core, jobs: Jobs, row: JobRow) -> FinishJob:
    now = core.clock.now()
    if row.cancelled is not None:
        end = outcome.cancelled(row.cancelled, stopped_by=row.stopped_by)
    else:
        end = outcome.failed(InternalError("the runtime restarted while the job was running"))
    tail = envelope.tail(
        end.type,
        end.payload(rfc3339(now)),
        id=new_id(),
        job_id=row.job_id,
        trace_id=row.trace_id,
    )
    entry = Entry(row.length, jobs.next_ordinal(), tail, terminal=True)
    return FinishJob(row.job_id, end.status, now, entry, error=end.error_brief)
