"""Pages of jobs: indexes lead to those that a query wants, and few others are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.postgres._rows import JOB_COLUMNS, job_of
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres._statements import plan_anew
from arcp_trio.store.records import JobRow, Status

_AGENTS: Final = """WITH RECURSIVE known (agent) AS (
        SELECT min(agent) FROM job WHERE NOT expired AND principal = %s
        UNION ALL
        SELECT (SELECT min(agent) FROM job
            WHERE NOT expired AND principal = %s AND agent > known.agent)
        FROM known WHERE agent IS NOT NULL
    ) SELECT agent FROM known WHERE split_part(agent, '@', 1) = %s"""
"""A principal's agents of one name; each agent is one step in the index."""


def jobs(db: Database, query: JobQuery) -> Sequence[JobRow]:
    """Read a page of jobs, in one statement."""
    terms = ["NOT expired", "(created_at, job_id) < (%s, %s)", "created_at > %s"]
    values: list[object] = [*query.bound, query.created_after]
    if query.principal is not None:
        terms.append("principal = %s")
        values.append(query.principal)
    if query.statuses != frozenset(Status):
        terms.append("status = ANY(%s)")
        values.append([status.value for status in query.statuses])
    if (agent := query.agent) is not None and "@" in agent:
        terms.append("agent = %s")
        values.append(agent)
    elif agent is not None and query.principal is not None:
        terms.append(f"agent = ANY(ARRAY({_AGENTS}))")
        values += [query.principal, query.principal, agent]
    elif agent is not None:
        terms.append("split_part(agent, '@', 1) = %s")
        values.append(agent)
    newest_first = "ORDER BY created_at DESC, job_id DESC"
    # The page ends with the first job that makes it exceed its size.
    statement = f"""SELECT {JOB_COLUMNS} FROM (
            SELECT *, sum(length(accepted)) OVER ({newest_first}) - length(accepted) AS before
            FROM (SELECT * FROM job WHERE {" AND ".join(terms)} {newest_first} LIMIT %s) AS page
        ) AS job WHERE before <= %s {newest_first}"""  # noqa: S608
    with db.pipeline():  # one transaction
        plan_anew(db)
        values += [query.limit, query.size]
        rows = db.execute(statement.encode(), values, binary=True).fetchall()
    return [job_of(row) for row in rows]
