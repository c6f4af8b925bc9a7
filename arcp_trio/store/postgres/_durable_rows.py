"""Reads of durable jobs: what they remember, have said, and need to be begun again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from arcp_trio.store.interface import Said
from arcp_trio.store.memos import Durability, JournalExtent, Memo, digests
from arcp_trio.store.packing import unpack_digests, unpack_entries
from arcp_trio.store.postgres._schema import Database

_PIECE_ROWS: Final = 64
"""Rows of a journal that one piece looks at."""


def unfinished(
    db: Database, me: int, among: Collection[str] | None = None
) -> dict[str, tuple[Durability, JournalExtent]]:
    """Read the durable jobs of a node that have not ended, or some of them."""
    wanted = None if among is None else list(among)
    rows = db.execute(
        """SELECT job_id, base, (SELECT coalesce(sum(length(entries)), 0)::bigint FROM journal
                WHERE journal.jid = job.jid AND last_index >= base),
            input, max_runtime, sends_chunks, wants_credentials, forget, run, fruitless_runs,
            durable.spent, knows_questions
        FROM durable JOIN job USING (jid)
        WHERE job.node = %s AND (%s::text[] IS NULL OR job_id = ANY(%s)) ORDER BY jid""",
        (me, wanted, wanted),
        binary=True,
    ).fetchall()
    return {
        row[0]: (
            Durability(
                input=row[3],
                max_runtime=row[4],
                sends_chunks=row[5],
                wants_credentials=row[6],
                forget=row[7],
                run=row[8],
                fruitless_runs=row[9],
                spent=row[10],
                knows_questions=row[11],
            ),
            JournalExtent(row[1], row[2]),
        )
        for row in rows
    }


def memos(db: Database, job_id: str) -> list[Memo]:
    """Read what a job remembers."""
    rows = db.execute(
        """SELECT key, kind, first_index, value FROM memo JOIN job USING (jid)
        WHERE job_id = %s ORDER BY id""",
        (job_id,),
        binary=True,
    ).fetchall()
    return [Memo(*row) for row in rows]


def memo(db: Database, job_id: str, key: str) -> Memo | None:
    """Read what a job remembers under one key."""
    row = db.execute(
        """SELECT key, kind, first_index, value FROM memo JOIN job USING (jid)
        WHERE job_id = %(job_id)s AND hashtextextended(key, 0) = hashtextextended(%(key)s, 0)
            AND hashtextextended(key, 1) = hashtextextended(%(key)s, 1)""",
        {"job_id": job_id, "key": key},
        binary=True,
    ).fetchone()
    return None if row is None else Memo(*row)


def said(db: Database, job_id: str, index: int) -> Said:
    """Read a piece of the events that are not to be said again, within the caller's transaction."""
    deleted = db.execute(
        """SELECT last_index, digests FROM said JOIN job USING (jid)
        WHERE job_id = %s AND last_index >= %s ORDER BY last_index LIMIT %s""",
        (job_id, index, _PIECE_ROWS),
        binary=True,
    ).fetchall()
    if deleted:
        found = [each for _, packed in deleted for each in unpack_digests(packed)]
        return [each for each in found if each[0] >= index], deleted[-1][0] + 1
    rows = db.execute(
        """SELECT first_index, last_index, entries FROM journal JOIN job USING (jid)
        WHERE job_id = %s AND last_index >= %s ORDER BY last_index LIMIT %s""",
        (job_id, index, _PIECE_ROWS),
        binary=True,
    ).fetchall()
    if not rows:
        return [], None
    found = [each for first, _, packed in rows for each in digests(unpack_entries(first, packed))]
    return [each for each in found if each[0] >= index], rows[-1][1] + 1
