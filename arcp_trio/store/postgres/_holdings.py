"""What principals have at other nodes, or waiting for one."""

from __future__ import annotations

from typing import Final

from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.shared import Holding

# A job that waits for a node has none. One that waits for people does not run.
_ELSEWHERE: Final = """
    SELECT principal, sum(jobs)::bigint, sum(sessions)::bigint FROM (
        SELECT principal, count(*) AS jobs, 0 AS sessions FROM job
        WHERE finished_at IS NULL AND node IS DISTINCT FROM %(me)s AND questions IS NULL
        GROUP BY principal
        UNION ALL
        SELECT principal, 0, count(*) FROM session WHERE node <> %(me)s GROUP BY principal
    ) AS had GROUP BY principal"""


def held_elsewhere(db: Database, me: int) -> dict[str, Holding]:
    """Read what each principal has that is not this node's."""
    rows = db.execute(_ELSEWHERE, {"me": me}).fetchall()
    return {principal: Holding(jobs, sessions) for principal, jobs, sessions in rows}
