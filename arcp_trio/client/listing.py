"""Listings of jobs (§6.6), page by page as they are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import attrs

from arcp_trio.wire.json import Json, JsonLike
from arcp_trio.wire.messages import JobEntry, Jobs


@attrs.frozen(kw_only=True)
class JobInfo:
    """One job of a listing."""

    id: str
    agent: str
    status: str
    lease: Mapping[str, Json]
    parent_id: str | None
    created_at: str | None
    trace_id: str | None
    last_event_seq: int | None
    """In the session that submitted it."""

    @classmethod
    def of(cls, entry: JobEntry) -> JobInfo:
        """Take it from its entry; runtimes leave things out."""
        return cls(
            id=entry.job_id,
            agent=entry.agent,
            status=entry.status,
            lease=entry.lease or {},
            parent_id=entry.parent_job_id,
            created_at=entry.created_at or entry.submitted_at,
            trace_id=entry.trace_id,
            last_event_seq=entry.last_event_seq,
        )


class JobListing:
    """Iterates over the jobs; asks for the next page when one is used up."""

    def __init__(
        self,
        ask: Callable[[Mapping[str, JsonLike]], Awaitable[Jobs]],
        wanted: Mapping[str, JsonLike],
    ) -> None:
        self._ask = ask
        self._wanted = wanted
        self._page: deque[JobEntry] = deque()
        self._cursor: str | None = None
        self._more = True

    def __aiter__(self) -> JobListing:
        return self

    async def __anext__(self) -> JobInfo:
        while not self._page and self._more:
            cursor = {} if self._cursor is None else {"cursor": self._cursor}
            answer = await self._ask({**self._wanted, **cursor})
            self._page.extend(answer.jobs)
            self._cursor = answer.next_cursor
            self._more = self._cursor is not None
        if not self._page:
            raise StopAsyncIteration
        return JobInfo.of(self._page.popleft())
