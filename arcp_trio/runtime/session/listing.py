"""Listings of the jobs that a session's principal may observe (§6.6)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from math import inf
from typing import TYPE_CHECKING, Final

import attrs
import trio
from msgspec.structs import replace

from arcp_trio.authority.budget import exact
from arcp_trio.runtime.job import costs
from arcp_trio.runtime.job.last_event import in_words, told_by
from arcp_trio.runtime.notices import frame
from arcp_trio.runtime.session.outbox import Answer
from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.records import Status
from arcp_trio.wire.errors import ArcpError, InvalidRequest, clip
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import (
    JsonObject,
    dumps,
    list_in,
    loads,
    loads_exact,
    loads_object,
    object_in,
    text_in,
)
from arcp_trio.wire.messages import (
    ErrorBrief,
    JobBrief,
    JobEntry,
    JobListing,
    ListJobs,
    ProgressBrief,
    WaitingFor,
)
from arcp_trio.wire.payloads import read, to_json
from arcp_trio.wire.questions import QUESTION, QuestionBody
from arcp_trio.wire.timestamps import parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence

    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.session.clerk import Request
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.store.records import JobRow

LAST_EVENTS: Final = 4
"""Entries among which the last event of a job at another node is looked for."""
LAST_BYTES: Final = 256 * 1024
"""Bytes of those of all jobs of a page, about."""

AT_ONCE: Final = 10
"""Entries that one step makes: others do not wait for all of a large page."""

PAGE_ALLOWANCE: Final = 1_024
"""Bytes of a frame around the entries of a listing, at most."""


class Lister:
    """Answers one session's requests for listings."""

    def __init__(self, core: Core, jobs: Jobs, session: Session) -> None:
        self._core = core
        self._jobs = jobs
        self._session = session

    async def list(self, request: Request, message: ListJobs) -> None:
        """Answer with a page of the jobs that the principal may observe, newest first.

        The page ends before it becomes too large for a frame, but has at least one job.
        """
        core, session = self._core, self._session
        found = await self._found(self._query(message))
        page: list[tuple[JobRow, JsonObject]] = []
        room = core.limits.frame_bytes_out - PAGE_ALLOWANCE
        for number, row in enumerate(await self._with_last_events(found[: message.page_size])):
            if number % AT_ONCE == AT_ONCE - 1:
                await trio.lowlevel.checkpoint()
            entry = to_json(await self._entry(row))
            # The store counts acceptances: where it has stopped for their size, this stops, too.
            room -= max(len(dumps(entry)), len(row.accepted))
            if room < 0 and page:
                break
            page.append((row, entry))
        listing = JobListing(
            request_id=request.id,
            jobs=[],
            next_cursor=_cursor_after(page[-1][0]) if len(page) < len(found) else None,
        )
        entries = [
            entry
            for row, entry in page
            if session.may_see(row.job_id, row.principal) and row.job_id not in self._jobs.to_forget
        ]
        answer = frame("session.jobs", {**to_json(listing), "jobs": entries})
        session.tell(Answer(request.attachment, answer))

    async def _found(self, query: JobQuery) -> Sequence[JobRow]:
        scope, reads = self._session.scope, self._session.reads
        if scope is None or scope.job_id is None:
            return await reads.jobs(query)
        row = await reads.job(scope.job_id)
        return [] if row is None or not query.wants_now(row) else [row]

    async def _with_last_events(self, rows: Sequence[JobRow]) -> Sequence[JobRow]:
        """Read the last events of the jobs that run at other nodes from their journals."""
        cursors = {
            row.job_id: max(row.base, row.length - LAST_EVENTS)
            for row in rows
            if row.finished_at is None and row.length > 0 and row.job_id not in self._jobs.live
        }
        if not cursors or self._core.store.shared is None:
            return rows
        try:
            found = await self._session.reads.owed(cursors, LAST_EVENTS * len(cursors), LAST_BYTES)
        except JournalTrimmed:
            return rows  # so much is emitted that nothing is the last event for long
        words = [(job_id, told_by(entry)) for job_id, entry in found]
        last = {job_id: told for job_id, told in words if told is not None}
        return [replace(row, last_event=last.get(row.job_id, row.last_event)) for row in rows]

    def _query(self, message: ListJobs) -> JobQuery:
        wanted, principal = message.filter, self._session.principal
        everybody = self._session.scope is None and self._core.policy.observes_all(principal)
        query = JobQuery(
            principal=None if everybody else principal,
            agent=wanted.agent,
            after=None if message.cursor is None else _place(message.cursor),
            limit=message.page_size + 1,
            size=self._core.limits.frame_bytes_out,
        )
        if wanted.status is not None:
            query = attrs.evolve(query, statuses=_statuses(wanted.status))
        if wanted.created_after is not None:
            query = attrs.evolve(query, created_after=parse_rfc3339(wanted.created_after))
        if wanted.created_before is not None:
            query = attrs.evolve(query, created_before=parse_rfc3339(wanted.created_before))
        return query

    async def _entry(self, row: JobRow) -> JobEntry:
        job = self._jobs.live.get(row.job_id)
        now = row if job is None else _as_it_is_now(row, job)
        waiting = await self._waiting(row)
        if waiting is not None:  # what a restart, or another task, has told since matters less
            now = replace(now, last_event=in_words(QUESTION, to_json(waiting.questions[0])))
        accepted = loads_exact(row.accepted)
        created_at = rfc3339(row.created_at)
        return JobEntry(
            job_id=row.job_id,
            agent=row.agent,
            status=now.status,
            lease=object_in(accepted["lease"]),
            parent_job_id=text_in(accepted.get("parent_job_id")),
            created_at=created_at,
            submitted_at=created_at,  # what some clients look for
            trace_id=row.trace_id,
            last_event_seq=row.last_seq,
            brief=_brief(now, accepted, self._node(now), _progress(job)),
            waiting=waiting,
        )

    def _node(self, row: JobRow) -> str | None:
        """Return the name of the node at which a job runs, if it is known."""
        if row.node is None or row.finished_at is not None:
            return None
        return self._core.node_names.get(row.node)

    async def _waiting(self, row: JobRow) -> WaitingFor | None:
        """Return what a job asks people, for clients that know questions."""
        if Feature.QUESTIONS not in self._session.features:
            return None
        job = self._jobs.live.get(row.job_id)
        if job is None:
            questions = _open_elsewhere(row, self._core.clock.now())
        else:
            await job.memory.is_known()
            questions = job.questions.listed()
        return WaitingFor(questions=questions) if questions else None


# -- what is known of a job


def _as_it_is_now(row: JobRow, job: Job) -> JobRow:
    """Return the row of a job that is alive with what will be stored when it ends."""
    ended = job.outcome if job.ended else None
    return replace(
        row,
        status=job.status,
        started_at=job.started_at,
        finished_at=job.finished_at,
        error=None if ended is None else ended.error_brief,
        spent=costs.spent(job),
        last_event=job.last_event.words,
    )


def _open_elsewhere(row: JobRow, now: float) -> list[QuestionBody]:
    """Return what a job that runs at another node asks people."""
    if row.questions is None or row.finished_at is not None:
        return []
    asked = [read(QuestionBody, object_in(each)) for each in list_in(loads(row.questions))]
    ends = [inf if each.expires_at is None else parse_rfc3339(each.expires_at) for each in asked]
    return [each for each, end in zip(asked, ends, strict=True) if now < end]


def _progress(job: Job | None) -> ProgressBrief | None:
    return None if job is None or job.ended else job.last_event.progress


def _brief(
    row: JobRow, accepted: JsonObject, node: str | None, progress: ProgressBrief | None
) -> JobBrief:
    return JobBrief(
        principal=row.principal,
        parent_id=text_in(accepted.get("parent_job_id")),
        started_at=None if row.started_at is None else rfc3339(row.started_at),
        finished_at=None if row.finished_at is None else rfc3339(row.finished_at),
        error=None if row.error is None else read(ErrorBrief, loads_object(row.error), root="$"),
        budget=_amounts(object_in(accepted.get("budget"))),
        spent=None if row.spent is None else _spent(row.spent),
        last_event=row.last_event,
        progress=progress,
        node=node,
    )


def _amounts(budget: JsonObject) -> dict[str, str] | None:
    return {each: f"{exact(amount):f}" for each, amount in budget.items()} or None


def _spent(stored: bytes) -> dict[str, str] | None:
    return {each: str(amount) for each, amount in loads_object(stored).items()} or None


def _statuses(names: Sequence[str]) -> frozenset[Status]:
    known = {status.value for status in Status}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidRequest(
            f"{clip(repr(unknown[0]))} is not one of {', '.join(Status)} @ $.payload.filter.status"
        )
    return frozenset(map(Status, names))


# -- cursors, which are opaque to the client


def _cursor_after(row: JobRow) -> str:
    return b64encode(dumps([row.created_at, row.job_id])).decode()


def _place(cursor: str) -> tuple[float, str]:
    try:
        match loads(b64decode(cursor, validate=True)):
            case [float() as created_at, str() as job_id]:
                return created_at, job_id
            case _:
                pass
    except (ValueError, ArcpError):
        pass
    raise InvalidRequest("the cursor did not come from a listing")
