"""Listings of jobs (§6.6), asked for page by page as the program reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import attrs

from arcp_trio.client.questions import Question
from arcp_trio.wire.json import Json
from arcp_trio.wire.messages import JobBrief, JobEntry, JobListing, ProgressBrief

if TYPE_CHECKING:
    from arcp_trio.client.session import ClientSession


@attrs.frozen(kw_only=True)
class JobInfo:
    """A job of a listing."""

    id: str
    agent: str
    status: str
    lease: Mapping[str, Json]
    parent_id: str | None
    created_at: str | None
    trace_id: str | None
    last_event_seq: int | None
    """The number of the job's last event in the session that submitted it."""

    # What only the runtime of this project tells; it leaves out what it does not know.
    principal: str | None = None
    """The principal that submitted it, or the job at the top of its tree."""
    started_at: str | None = None
    """When its agent was called."""
    finished_at: str | None = None
    error_code: str | None = None
    """The code of the error that it ended with (§12)."""
    error: str | None = None
    """The message of that error, in one line."""
    budget: Mapping[str, Decimal] | None = None
    """What it was given to spend, by currency (§9.6)."""
    spent: Mapping[str, Decimal] | None = None
    """What it and the jobs that it delegated to have spent, by currency."""
    waiting: Sequence[Question] = ()
    """The questions that wait for an answer."""
    last_event: str | None = None
    """What it asks people, if it waits for them, or its last event: in words, in one line."""
    progress: tuple[float, float | None] | None = None
    """How far it is while it runs: what is done, and the total if there is one."""
    node: str | None = None
    """The node at which it runs, if the runtime is several."""


def _job_info(session: ClientSession, entry: JobEntry) -> JobInfo:
    """Describe a job from an entry of a page; runtimes may leave fields out."""
    brief = entry.brief or JobBrief()
    error = brief.error
    asked = [] if entry.waiting is None else entry.waiting.questions
    return JobInfo(
        id=entry.job_id,
        agent=entry.agent,
        status=entry.status,
        lease=entry.lease or {},
        parent_id=entry.parent_job_id or brief.parent_id,
        created_at=entry.created_at or entry.submitted_at,
        trace_id=entry.trace_id,
        last_event_seq=entry.last_event_seq,
        principal=brief.principal,
        started_at=brief.started_at,
        finished_at=brief.finished_at,
        error_code=None if error is None else error.code,
        error=None if error is None else error.message,
        budget=_amounts(brief.budget),
        spent=_amounts(brief.spent),
        last_event=brief.last_event,
        progress=None if brief.progress is None else _far(brief.progress),
        node=brief.node,
        waiting=[Question(session, entry.job_id, body) for body in asked],
    )


def _far(progress: ProgressBrief) -> tuple[float, float | None]:
    total = progress.total
    return float(progress.current), None if total is None else float(total)


def _amounts(amounts: Mapping[str, str] | None) -> Mapping[str, Decimal] | None:
    if amounts is None:
        return None
    return {currency: Decimal(amount) for currency, amount in amounts.items()}


class JobIterator:
    """Iterates over a listing, and asks for the next page when one is used up."""

    def __init__(
        self, session: ClientSession, ask: Callable[[str | None], Awaitable[JobListing]]
    ) -> None:
        self._session = session
        self._ask = ask  # called with the cursor of the page; None for the first one
        self._page: deque[JobEntry] = deque()
        self._cursor: str | None = None
        self._more = True

    def __aiter__(self) -> JobIterator:
        return self

    async def __anext__(self) -> JobInfo:
        while not self._page and self._more:
            page = await self._ask(self._cursor)
            self._page.extend(page.jobs)
            self._cursor = page.next_cursor
            self._more = self._cursor is not None
        if not self._page:
            raise StopAsyncIteration
        return _job_info(self._session, self._page.popleft())
