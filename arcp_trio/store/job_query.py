"""What a listing of jobs asks of a store (§6.6)."""

from __future__ import annotations

import math

import attrs

from arcp_trio.store.records import JobRow, Status


@attrs.frozen(kw_only=True)
class JobQuery:
    """Which retained jobs a listing is to have, newest first (§6.6)."""

    principal: str | None
    """None asks for the jobs of all principals."""
    statuses: frozenset[Status] = frozenset(Status)
    agent: str | None = None
    """`name` for any version, or `name@version`."""
    created_after: float = -math.inf
    created_before: float = math.inf
    """Jobs created exactly at `created_after` or `created_before` are left out."""
    after: tuple[float, str] | None = None
    """`created_at` and id of the last job of the page before; the listing goes on after it."""
    limit: int
    size: float = math.inf
    """Bytes of acceptances: the page ends with the first job that exceeds them."""

    @property
    def bound(self) -> tuple[float, str]:
        """What `created_at` and id of each job must be below."""
        before = self.created_before, ""
        return before if self.after is None else min(before, self.after)

    def wants(self, row: JobRow) -> bool:
        """Return whether status and agent of a job are as the query asks."""
        return row.status in self.statuses and self.wants_agent(row.agent)

    def wants_now(self, row: JobRow) -> bool:
        """Return whether a job is one of those that the query still asks for, at its place."""
        in_time = self.created_after < row.created_at and (row.created_at, row.job_id) < self.bound
        return in_time and self.wants(row)

    def wants_agent(self, agent: str) -> bool:
        """Return whether the query asks for jobs of an agent, given as `name@version`."""
        return self.agent is None or self.agent in (agent, agent.partition("@")[0])
