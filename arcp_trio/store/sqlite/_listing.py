"""Pages of jobs: indexes lead to those that a query wants, and few others are looked at."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import ExitStack, closing
from heapq import merge
from itertools import islice
from typing import Final, TypeAlias

from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.records import JobRow, Status
from arcp_trio.store.sqlite import _rows

_Found: TypeAlias = tuple[float, str, int]
"""`created_at`, id and `jid` of a job."""
_Search: TypeAlias = Callable[..., Iterator[_Found]]
"""Finds the jobs for which further terms with these values are true, newest first."""

_PLACES: Final = """SELECT created_at, job_id, jid FROM job
    WHERE expired = 0 AND (created_at, job_id) < (?, ?) AND created_at > ?"""
_NEWEST_FIRST: Final = " ORDER BY created_at DESC, job_id DESC"

_AGENTS: Final = """WITH RECURSIVE known (agent) AS (
        SELECT min(agent) FROM job WHERE expired = 0 AND principal = ?1
        UNION ALL
        SELECT (SELECT min(agent) FROM job
            WHERE expired = 0 AND principal = ?1 AND agent > known.agent)
        FROM known WHERE agent IS NOT NULL
    ) SELECT agent FROM known WHERE agent IS NOT NULL"""
"""The agents of a principal's jobs; each is one step in the index."""


def jobs(db: sqlite3.Connection, query: JobQuery) -> Sequence[JobRow]:
    """Read a page of jobs."""
    with ExitStack() as opened:

        def search(terms: str, *values: object) -> Iterator[_Found]:
            places = *query.bound, query.created_after
            return opened.enter_context(
                closing(db.execute(_PLACES + terms + _NEWEST_FIRST, (*places, *values)))
            )

        if query.principal is None:
            found = _everybodys(query, search)
        elif query.agent is None and query.statuses == frozenset(Status):
            found = search(" AND principal = ?", query.principal)
        else:
            agents = [agent for (agent,) in db.execute(_AGENTS, (query.principal,)).fetchall()]
            found = _filtered(query, filter(query.wants_agent, agents), search)
        jids = [jid for _, _, jid in islice(found, query.limit)]
    page = _fitting(db, jids, query.size)
    return _rows.jobs(db, f"jid IN ({_marks(page)}) {_NEWEST_FIRST}", *page)


def _filtered(query: JobQuery, agents: Iterator[str], search: _Search) -> Iterator[_Found]:
    """Find jobs of some agents and statuses: one search for each pair, read as it is needed."""
    terms = " AND principal = ? AND agent = ? AND status = ?"
    pairs = [(agent, status) for agent in agents for status in query.statuses]
    return merge(*(search(terms, query.principal, *pair) for pair in pairs), reverse=True)


def _everybodys(query: JobQuery, search: _Search) -> Iterator[_Found]:
    """Find jobs of all principals, as observers may: the index of jobs is read through."""
    terms, values = f" AND status IN ({_marks(query.statuses)})", [*query.statuses]
    if (agent := query.agent) is not None and "@" in agent:
        return search(terms + " AND agent = ?", *values, agent)
    if agent is not None:
        terms += " AND substr(agent, 1, ?) IN (?, ?)"
        return search(terms, *values, len(agent) + 1, agent, f"{agent}@")
    return search(terms, *values)


def _fitting(db: sqlite3.Connection, jids: Sequence[int], size: float) -> list[int]:
    """Return the first of these jobs, up to the first that makes them exceed `size` bytes."""
    heads = db.execute(
        f"SELECT jid, length(accepted) FROM job WHERE jid IN ({_marks(jids)}) {_NEWEST_FIRST}",  # noqa: S608
        jids,
    )
    page: list[int] = []
    for jid, length in heads.fetchall():
        if size < 0:
            break
        page.append(jid)
        size -= length
    return page


def _marks(values: Sized) -> str:
    return ", ".join("?" * len(values))
