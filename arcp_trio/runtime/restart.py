"""What a runtime does with the jobs and credentials that another one has left in the store.

Durable jobs are alive again at once, and their agents are called as `Beginnings` has it. All other
jobs that were running are ended.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.durable.again import revive
from arcp_trio.store.errors import StoreError
from arcp_trio.store.records import Entry, JobRow, Recovered
from arcp_trio.store.writes import FinishJob
from arcp_trio.wire import envelope
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import loads_object
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.durable.beginnings import Beginnings
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.job.outcome import Outcome
    from arcp_trio.runtime.session.sessions import Sessions
    from arcp_trio.store.interface import Store

Sift: TypeAlias = "Callable[[Recovered], Awaitable[Recovered]]"
"""Leaves to other nodes what they alone can go on with, and returns the rest."""

BeforeLoss: TypeAlias = "Callable[[Mapping[str, int]], Awaitable[None]]"
"""Is told how many durable jobs of each agent are about to end; it raises to keep them."""

log = logging.getLogger(__name__)


@attrs.frozen
class Leaver:
    """A runtime or a node that has left jobs to be settled, in words."""

    why: str
    """What happened to it, for the clients of the jobs that end."""
    event: str
    """What the log says once they are settled."""
    facts: Mapping[str, object] = attrs.field(factory=dict[str, object])


PREVIOUS_RUNTIME: Final = Leaver("the runtime restarted", "took over from the previous runtime")


async def take_over(
    core: Core,
    sessions: Sessions,
    beginnings: Beginnings,
    sift: Sift | None,
    before_loss: BeforeLoss | None,
) -> None:
    """Settle what the previous runtime has left, park its sessions, and let clients in.

    They are let in only once the terminals are stored, however long the store is in trouble.
    """
    found = await _recovered(core.store)
    if sift is not None:
        found = await sift(found)
    if orphans := _orphans(core, sessions.jobs, found):
        if before_loss is not None:
            await before_loss(orphans)
        for agent, count in orphans.items():
            facts = {"agent": agent, "jobs": count}
            log.warning("durable jobs end: there is no such durable agent", extra=facts)
    revived = await settle(core, sessions.jobs, found, PREVIOUS_RUNTIME)
    sessions.park_all(found.sessions)
    core.taken_over.set()
    await beginnings.run(revived)


def _orphans(core: Core, jobs: Jobs, found: Recovered) -> Counter[str]:
    """Return how many durable jobs there are whose agent is not registered, or not as durable."""
    refs = [
        row.agent
        for row in found.unfinished
        if row.job_id in found.durable and row.cancelled is None and core.store.outlasts_process
    ]
    return Counter(ref for ref in refs if not _is_durable(jobs, ref))


def _is_durable(jobs: Jobs, ref: str) -> bool:
    try:
        return jobs.agents.resolve(ref).durable
    except ArcpError:
        return False


async def _recovered(store: Store) -> Recovered:
    """Read what the previous runtime has left, once the store is not in trouble.

    Raises:
        StoreError: the store can be written, and not read.
    """
    while True:
        try:
            return await store.recover()
        except StoreError:
            if store.trouble is None:
                raise
        await store.recovered()


async def settle(core: Core, jobs: Jobs, found: Recovered, leaver: Leaver) -> list[Job]:
    """End or revive the jobs that were running, revoke credentials, and return the revived jobs.

    Revocation is tried at first, for a bounded time, and goes on later if it fails (§14).

    Nothing is added to sessions: the jobs' new terminals make them behind, and they catch up when
    they are next used.

    Args:
        core: what the jobs run on from now on.
        jobs: those that are alive here.
        found: what another runtime, now gone, has left.
        leaver: that runtime.
    """
    jobs.go_on_from(found.ordinal)
    lost: list[tuple[JobRow, Outcome]] = []
    revived: list[Job] = []
    for row in found.unfinished:  # parents before their children
        end = _end_of(core, jobs, row, found, leaver.why)
        if end is not None:
            lost.append((row, end))
        else:
            agent = jobs.agents.resolve(row.agent)
            revived.append(revive(jobs, agent, row, *found.durable[row.job_id], found.sessions))
    jobs.taken.set()
    for row, end in reversed(lost):
        core.metrics.finished[end.status] += 1
        core.store.put(_lost(core, jobs, row, end, found))
    await core.store.flushed()
    await jobs.revoker.take_over(found.credentials)
    if found.sessions or found.unfinished:
        taken = {
            "sessions": len(found.sessions),
            "jobs_ended": len(lost),
            "jobs_begun_again": len(revived),
        }
        log.info(leaver.event, extra={**leaver.facts, **taken})
    return revived


def _end_of(core: Core, jobs: Jobs, row: JobRow, found: Recovered, why: str) -> Outcome | None:
    """Return the outcome of a job that cannot go on; None if it can."""
    if row.job_id in found.durable and core.store.outlasts_process and _has_its_parent(jobs, row):
        try:
            if jobs.agents.resolve(row.agent).durable:
                return None
        except ArcpError as gone:
            if row.cancelled is None:
                return outcome.failed(gone)
    if row.cancelled is not None:
        return outcome.cancelled(row.cancelled, stopped_by=row.stopped_by)
    return outcome.failed(InternalError(f"{why} while the job was running"))


def _has_its_parent(jobs: Jobs, row: JobRow) -> bool:
    parent = loads_object(row.accepted).get("parent_job_id")
    return parent is None or parent in jobs.live


def _lost(core: Core, jobs: Jobs, row: JobRow, end: Outcome, found: Recovered) -> FinishJob:
    now = core.clock.now()
    durability, _ = found.durable.get(row.job_id, (None, None))
    tail = envelope.tail(
        end.type,
        end.payload(rfc3339(now)),
        id=new_id(),
        job_id=row.job_id,
        trace_id=row.trace_id,
    )
    entry = Entry(row.length, jobs.next_ordinal(), tail, terminal=True)
    return FinishJob(
        row.job_id,
        end.status,
        now,
        entry,
        error=end.error_brief,
        spent=None if durability is None else durability.spent,
        durable=durability is not None,
    )
