"""What an expiry marks, within the transaction of its group: finished jobs past their retention.

The rows of a marked job may be many, so housekeeping deletes them.
"""

from __future__ import annotations

import math
from typing import Final

from arcp_trio.store.postgres._rows import JOB_BYTES, stored_bytes
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.postgres._statements import plan_anew
from arcp_trio.store.retention import surplus, surplus_bytes
from arcp_trio.store.writes import Expire

EXPIRING: Final = 1
"""The advisory lock of the one node whose expiry counts what is kept."""

_PAGE: Final = 64
"""Jobs of a principal that are looked at together, to find the oldest that are too large."""

_COUNTED: Final = "finished_at IS NOT NULL AND NOT expired AND kept_by IS NULL"
"""Whether a job has ended and may be given up."""


def expire(write: Expire, db: Database) -> None:
    """Mark jobs past their retention, and delete expired keys.

    If another node is about to do so, only what is to be forgotten now is marked: two nodes that
    count the same jobs would give up twice as many.
    """
    plan_anew(db)
    if write.forgotten:
        _mark(db, b"job_id = ANY(%s)", [*write.forgotten])
    if not alone(db, EXPIRING):
        return
    if write.finished_before > -math.inf:
        # The index of finished jobs has the principal first.
        _mark(
            db,
            b"principal = ANY(ARRAY(SELECT DISTINCT principal FROM share)) AND finished_at <= %s",
            write.finished_before,
        )
    _expire_surplus(db, write.finished_jobs)
    bounds = write.bytes_each, write.bytes_total
    if surplus_bytes(_booked(db, "stored_bytes"), *bounds):  # else what is given up hardly matters
        for principal, size in surplus_bytes(stored_bytes(db), *bounds).items():
            _expire_bytes(db, principal, size)
    db.execute(
        """DELETE FROM key WHERE due <= %s
        AND NOT EXISTS (SELECT 1 FROM retained WHERE retained.job_id = key.job_id)""",
        (write.now,),
    )
    db.execute("UPDATE key SET due = NULL WHERE due <= %s", (write.now,))
    if write.parked_sessions is not None:
        _end_windows(db, write.parked_sessions)


def _end_windows(db: Database, most_each: int) -> None:
    """End the windows of the sessions that were parked first, of principals with too many."""
    db.execute(
        """UPDATE session SET parked_until = now() WHERE node IS NULL AND sid IN (
            SELECT sid FROM (SELECT sid, row_number() OVER (
                PARTITION BY principal ORDER BY parked_until DESC, sid DESC) AS place
                FROM session WHERE node IS NULL AND principal IN (
                    SELECT principal FROM session WHERE node IS NULL
                    GROUP BY principal HAVING count(*) > %s)
            ) AS parked WHERE place > %s)""",
        (most_each, most_each),
    )


def alone(db: Database, work: int) -> bool:
    """Return whether no other node does this work now; from here on none does in the transaction.

    The nodes of each schema have locks of their own.
    """
    row = db.execute(
        "SELECT pg_try_advisory_xact_lock(%s::int, hashtext(current_schema()))", (work,)
    ).fetchone()
    return row is not None and row[0]


def _mark(db: Database, which: bytes, value: object) -> None:
    db.execute(
        b"UPDATE job SET expired = true WHERE " + _COUNTED.encode() + b" AND " + which, (value,)
    )


def _booked(db: Database, what: str) -> dict[str, int]:
    rows = db.execute(
        f"""SELECT principal, sum({what})::bigint FROM share
        GROUP BY principal ORDER BY principal""".encode()  # noqa: S608
    )
    return dict(rows.fetchall())


def _expire_surplus(db: Database, most: int) -> None:
    """Mark the oldest jobs of those that have most, so that `most` are left."""
    finished = {each: count for each, count in _booked(db, "finished_jobs").items() if count > 0}
    lost = surplus(finished, most)
    if not lost:
        return
    db.execute(
        f"""UPDATE job SET expired = true
        FROM unnest(%s::text[], %s::bigint[]) AS lost (principal, count), LATERAL (
            SELECT jid FROM job WHERE job.principal = lost.principal AND {_COUNTED}
            ORDER BY finished_at, terminal_ordinal LIMIT lost.count
        ) AS oldest WHERE job.jid = oldest.jid""".encode(),  # noqa: S608
        ([*lost], [*lost.values()]),
    )


def _expire_bytes(db: Database, principal: str, size: int) -> None:
    """Mark a principal's oldest finished jobs, until they have `size` bytes together."""
    while size > 0:
        page = db.execute(
            f"""SELECT jid, {JOB_BYTES} FROM job WHERE principal = %s AND {_COUNTED}
            ORDER BY finished_at, terminal_ordinal LIMIT {_PAGE}""".encode(),  # noqa: S608
            (principal,),
        ).fetchall()
        marked: list[int] = []
        for jid, job_size in page:
            if size <= 0:
                break
            marked.append(jid)
            size -= job_size
        if not marked:
            return
        db.execute("UPDATE job SET expired = true WHERE jid = ANY(%s)", (marked,))
