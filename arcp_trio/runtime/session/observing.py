"""What a session may see of jobs it did not submit: subscriptions (§7.6)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs

from arcp_trio.runtime.credentials.holes import with_holes
from arcp_trio.runtime.limits import limit_hit
from arcp_trio.runtime.notices import frame
from arcp_trio.runtime.session.outbox import AfterNumber, Answer, Promise
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.wire.errors import JobNotFound
from arcp_trio.wire.features import knows_ours
from arcp_trio.wire.json import (
    JsonObject,
    JsonValue,
    list_in,
    loads_exact,
    loads_object,
    object_in,
    text_in,
)
from arcp_trio.wire.messages import (
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from arcp_trio.wire.payloads import to_json
from arcp_trio.wire.timestamps import rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core
    from arcp_trio.runtime.job.job import Job
    from arcp_trio.runtime.job.jobs import Jobs
    from arcp_trio.runtime.job.written import Written
    from arcp_trio.runtime.session.clerk import Request
    from arcp_trio.runtime.session.session import Session
    from arcp_trio.store.interface import Reads
    from arcp_trio.store.records import JobRow

MOST_INPUT_BYTES: Final = 64 * 1024
"""A larger input is not told to those who subscribe to the job."""

audit = logging.getLogger("arcp_trio.audit")
"""Records each attempt to observe a job, and what was decided (§14)."""


class Observing:
    """One session's view of the jobs."""

    def __init__(self, core: Core, jobs: Jobs, session: Session) -> None:
        self._core = core
        self._jobs = jobs
        self._session = session

    # -- subscriptions (§7.6)

    async def subscribe(self, request: Request, message: Subscribe) -> None:
        """Watch a job from here on, or from further back.

        Raises:
            JobNotFound: there is no such job, or the principal may not know of it; the same words.
        """
        session = self._session
        owner = await session.reads.owner(message.job_id)
        allowed = owner is not None and session.may_see(message.job_id, owner)
        facts = {"subscriber": session.principal, "job_id": message.job_id, "owner": owner}
        audit.info("subscription %s", "allowed" if allowed else "refused", extra=facts)
        row = await session.reads.job(message.job_id) if allowed else None
        if row is None:
            raise JobNotFound("there is no such job")
        cursor = await self._cursor(message)
        job = self._jobs.live.get(row.job_id)
        if job is None and row.finished_at is None:
            row = await session.reads.job(row.job_id)  # it has ended, or come further, since
            if row is None:
                raise JobNotFound("there is no such job")
        self._begin(request, message, row, job, cursor)

    async def _cursor(self, message: Subscribe) -> int | None:
        """Return the index in the journal at which to begin; None for its end."""
        if not message.history:
            return None
        after = max(0, message.from_event_seq or 0)
        return await self._session.reads.index_after(message.job_id, after)

    def _begin(
        self,
        request: Request,
        message: Subscribe,
        row: JobRow,
        job: Job | None,
        cursor: int | None,
    ) -> None:
        session = self._session
        length = row.length if job is None else job.journal.length
        goes_on = row.finished_at is None if job is None else not job.ended
        journal = self._jobs.journal(row.job_id, length) if job or goes_on else None
        follows = self._follows(row, journal, goes_on=goes_on)
        watch: Watch | None = None
        if cursor is not None or not (follows or self._submitted(row)):
            cursor = length if cursor is None else cursor
            if job is not None:
                cursor = max(cursor, job.journal.first)
            if cursor < length or (goes_on and not follows):
                if not follows:
                    self._check_room()
                    if job is None and self._jobs.other_journals is not None:
                        self._jobs.other_journals.refuse_if_full(row.job_id)
                watch = Watch(session, row.job_id, journal, cursor, observer=True)
        accepted = loads_object(row.accepted)
        whole = message.history and not message.from_event_seq
        gone = cursor or 0 if whole else 0
        subscribed = Subscribed(
            request_id=request.id,
            current_status=row.status if job is None else job.status,
            job_id=row.job_id,
            agent=row.agent,
            lease=object_in(accepted["lease"]),
            lease_constraints=object_in(accepted.get("lease_constraints")) or None,
            budget=_budget(row, job),
            credentials=_credentials(row, job),
            parent_job_id=text_in(accepted.get("parent_job_id")),
            trace_id=row.trace_id,
            extras=self._extras(row, job, gone),
        )
        make = partial(_subscribed_tail, subscribed, watch, length)
        tail = AfterNumber(make, size=len(row.accepted))
        if watch is None:
            # The session gets all of the job's events anyway, or the job is over.
            session.tell(Answer(request.attachment, tail))
            return
        session.tell(Promise(tail, watch))
        if not follows:
            session.subscriptions[row.job_id] = watch
            watch.join_journal()

    def _extras(self, row: JobRow, job: Job | None, gone: int) -> JsonObject | None:
        """Return what the answer says beyond §7.6, to clients that know this project."""
        if not knows_ours(self._session.features):
            return None
        extras: JsonObject = {"created_at": rfc3339(row.created_at)}
        if gone:
            extras["gone"] = gone
        own = self._session.scope is None and self._session.principal == row.principal
        if job is not None and own and len(job.input) <= MOST_INPUT_BYTES:
            extras["input"] = job.input.decode()
        return extras

    def _follows(self, row: JobRow, journal: Written | None, *, goes_on: bool) -> bool:
        """Whether the session gets the job's events without another subscription."""
        session = self._session
        watch = session.watches.get(row.job_id)
        return (
            row.job_id in session.subscriptions
            or (watch is not None and not watch.observer)
            or (journal is not None and journal.has(session.id))
            or (goes_on and self._submitted(row))
        )

    def _submitted(self, row: JobRow) -> bool:
        """Whether the session has submitted the job."""
        return row.session_id == self._session.id or self._session.id in row.submitters

    def _check_room(self) -> None:
        most = self._core.limits.subscriptions_per_session
        if len(self._session.subscriptions) >= most:
            helps = "unsubscribe from a job first"
            raise limit_hit("subscriptions_per_session", most, what_helps=helps)

    def unsubscribe(self, message: Unsubscribe) -> None:
        """Stop watching a job at once; this is not answered."""
        self._session.stop_observing(message.job_id)


# -- what an observer may know of a job


async def unseen(session: Session, reads: Reads, jobs: Jobs) -> Sequence[Watch]:
    """Return the subscriptions of a session to jobs that its client may not know of (any more)."""
    found: list[Watch] = []
    for job_id, watch in list(session.subscriptions.items()):
        job = jobs.live.get(job_id)
        owner = await reads.owner(job_id) if job is None else job.principal
        if owner is not None and not session.may_see(job_id, owner):
            facts = {"subscriber": session.principal, "job_id": job_id, "owner": owner}
            audit.info("subscription ended", extra=facts)
            found.append(watch)
    return found


def _subscribed_tail(
    subscribed: Subscribed, watch: Watch | None, length: int, after_seq: int
) -> bytes:
    """Return a `job.subscribed`, which its replay follows up to `subscribed_from` (§7.6).

    Where the session watches the job already, the replay is what it is sent again.
    """
    replayed = 0
    if watch is not None:
        known = watch.session.watches.get(watch.job_id)
        replayed = max(0, (length if known is None else known.given) - watch.cursor)
    said = attrs.evolve(subscribed, replayed=replayed > 0, subscribed_from=after_seq + replayed)
    tail = frame(said.type, to_json(said), job_id=said.job_id, trace_id=said.trace_id)
    return tail if said.credentials is None else with_holes(tail)


def _credentials(row: JobRow, job: Job | None) -> list[JsonObject] | None:
    """Return the job's credentials without values; those who may see them get them filled in."""
    if job is not None:
        held = [] if job.wallet is None else job.wallet.all()
        return [credential.public() for credential in held] or None
    if row.finished_at is not None:
        return None
    # It runs at another node; what it was accepted with is known here.
    return [
        object_in(each) for each in list_in(loads_object(row.accepted).get("credentials"))
    ] or None


def _budget(row: JobRow, job: Job | None) -> JsonObject | None:
    """Return what is left of the job's budget now, by currency."""
    if job is not None:
        return dict[str, JsonValue](job.authority.budget.remaining) or None
    if row.budget is not None:
        return loads_exact(row.budget)
    # It runs at another node, and has not spent anything.
    return object_in(loads_exact(row.accepted).get("budget")) if row.finished_at is None else None
