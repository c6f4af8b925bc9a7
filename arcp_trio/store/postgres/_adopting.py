"""What a node has left, and how another one takes it over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import attrs

from arcp_trio.store.nodes import NodeRow
from arcp_trio.store.postgres import _durable_rows, _rows
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.records import Recovered

# If two nodes adopt a third one, the later node waits here until the earlier one has committed.
_STILL_THERE: Final = """
    SELECT beats FROM node JOIN beat USING (node) WHERE node = %s AND state <> 'gone' FOR UPDATE"""

# What else a node that is gone has left.
_REST: Final = (
    """UPDATE session SET node = NULL, parked_until = now() + make_interval(secs => %(window)s)
        WHERE node = %(gone)s""",
    # Its sessions are parked now: nobody has to let go of them.
    "DELETE FROM command WHERE node = %(gone)s AND kind = 'release' AND answer IS NULL",
    "UPDATE command SET node = %(me)s WHERE node = %(gone)s AND answer IS NULL",
    "DELETE FROM key WHERE node = %(gone)s AND accepted IS NULL",
    "DELETE FROM follow WHERE node = %(gone)s",
    "DELETE FROM beat WHERE node = %(gone)s",
)


@attrs.frozen
class Taken:
    """What of a node that is gone is another one's now."""

    jobs: frozenset[str]
    """The ids of its unfinished jobs."""
    credentials: frozenset[str]
    """The ids of the rows of its credentials."""


def adopt(db: Database, me: int, dead: NodeRow, window: float) -> Taken | None:
    """Take over from a node, unless it is gone or has given another sign of life.

    The caller's transaction has begun with a look whether this node is gone.
    """
    found = db.execute(_STILL_THERE, (dead.node,)).fetchone()
    if found != (dead.beats,):
        return None
    db.execute("UPDATE node SET state = 'gone', at = now() WHERE node = %s", (dead.node,))
    return take_over(db, me, dead.node, window)


def take_over(db: Database, me: int, gone: int, window: float) -> Taken:
    """Give one node what another one has left, within the caller's transaction."""
    names = {"me": me, "gone": gone, "window": float(window)}
    jobs = db.execute(
        """UPDATE job SET node = %(me)s WHERE node = %(gone)s AND finished_at IS NULL
        RETURNING job_id""",
        names,
    ).fetchall()
    credentials = db.execute(
        "UPDATE credential SET node = %(me)s WHERE node = %(gone)s RETURNING row_id", names
    ).fetchall()
    for statement in _REST:
        db.execute(statement, names)
    return Taken(frozenset(each for (each,) in jobs), frozenset(each for (each,) in credentials))


def leave_jobs(db: Database, me: int, job_ids: Collection[str]) -> None:
    """Have jobs wait for a node that has their agents."""
    db.execute(
        """UPDATE job SET node = NULL, waits_since = now()
        WHERE job_id = ANY(%s) AND node = %s AND finished_at IS NULL""",
        (list(job_ids), me),
    )


def take_jobs(
    db: Database, me: int, agents: Sequence[str], most: int, orphan_seconds: float
) -> Taken:
    """Give jobs that wait to a node, with all below them, within the caller's transaction.

    Any node can end one that somebody wants to end.
    """
    roots = db.execute(
        """SELECT jid FROM job WHERE node IS NULL AND finished_at IS NULL
        AND (agent = ANY(%s) OR waits_since < now() - make_interval(secs => %s)
            OR waits_since IS NOT NULL AND job_id IN (
                SELECT about FROM command WHERE kind = 'end' AND answer IS NULL))
        AND NOT EXISTS (SELECT FROM job AS p
            WHERE p.jid = job.parent_jid AND p.node IS NULL AND p.finished_at IS NULL)
        ORDER BY jid LIMIT %s FOR UPDATE SKIP LOCKED""",
        (list(agents), float(orphan_seconds), most),
    ).fetchall()
    if not roots:
        return Taken(frozenset(), frozenset())
    jobs = db.execute(
        """WITH RECURSIVE tree AS (
            SELECT unnest(%s::bigint[]) AS jid
            UNION ALL SELECT job.jid FROM job JOIN tree ON job.parent_jid = tree.jid
            WHERE job.node IS NULL AND job.finished_at IS NULL
        ) UPDATE job SET node = %s, waits_since = NULL FROM tree WHERE job.jid = tree.jid
        RETURNING job_id""",
        ([jid for (jid,) in roots], me),
    ).fetchall()
    taken = [job_id for (job_id,) in jobs]
    db.execute("UPDATE command SET node = %s WHERE about = ANY(%s) AND answer IS NULL", (me, taken))
    return Taken(frozenset(taken), frozenset())


def taken_from(db: Database, me: int, gone: int, taken: Taken) -> Recovered | None:
    """Read what was taken over of a node; None if it was not, as its transaction has failed.

    The caller's transaction sees one state of the database.
    """
    state = db.execute("SELECT state FROM node WHERE node = %s", (gone,)).fetchone()
    unfinished = _rows.unfinished(db, me, taken.jobs)
    if state in {("up",), ("draining",)} or len(unfinished) < len(taken.jobs):
        return None
    return Recovered(
        ordinal=_rows.highest_ordinal(db),
        sessions=_rows.submitters(db, unfinished),
        unfinished=unfinished,
        credentials=[r for r in _rows.credentials(db, me) if r.row_id in taken.credentials],
        durable=_durable_rows.unfinished(db, me, taken.jobs),
    )
