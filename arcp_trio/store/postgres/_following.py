"""What a node reads of the journals that other nodes write, besides their entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.postgres._owed import owed
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.records import Owed
from arcp_trio.store.shared import Extent, News

_EXTENTS: Final = """SELECT job_id, jid, trace_id, finished_at IS NOT NULL,
    CASE WHEN parent_jid IS NULL THEN jid ELSE (
        WITH RECURSIVE above AS (
            SELECT job.jid, job.parent_jid AS next
            UNION ALL SELECT above.next, parent.parent_jid
            FROM above LEFT JOIN job AS parent ON parent.jid = above.next
            WHERE above.next IS NOT NULL
        ) SELECT jid FROM above WHERE next IS NULL) END,
    CASE WHEN finished_at IS NOT NULL THEN length ELSE coalesce(
        (SELECT last_index + 1 FROM journal WHERE journal.jid = job.jid
            ORDER BY last_index DESC LIMIT 1), base) END
    FROM job WHERE job_id = ANY(%s)"""

_CURSORS: Final = """SELECT job_id, cursor FROM session
    JOIN watch ON watch.sid = session.sid JOIN job ON job.jid = watch.jid
    WHERE session.session_id = %s AND session.node <> %s AND job_id = ANY(%s)"""


def news(
    db: Database, job_ids: Collection[str], cursors: Mapping[str, int], entries: int, size: int
) -> News:
    """Read how far journals go, and then what is new in them; see `Follows.news`."""
    found: Sequence[Owed] = ()
    with db.pipeline():  # one way to the server and back
        rows = db.execute(_EXTENTS, ([*job_ids],))
        with suppress(JournalTrimmed):
            found = owed(db, cursors, entries, size)
        return News(_extents(rows), found)


def _extents(rows: Iterable[tuple[str, int, str, bool, int, int]]) -> Mapping[str, Extent]:
    return {
        job_id: Extent(key=jid, tree=tree, trace_id=trace_id, length=length, finished=finished)
        for job_id, jid, trace_id, finished, tree, length in rows
    }


def cursor_elsewhere(db: Database, me: int, job_ids: Sequence[str], session_id: str) -> int | None:
    """Read how far a session has come that another node than `me` has awake.

    See `Follows.cursor_elsewhere`.
    """
    rows: Iterable[tuple[str, int]] = db.execute(_CURSORS, (session_id, me, [*job_ids])).fetchall()
    cursors = dict(rows)
    if job_ids[0] in cursors:
        return cursors[job_ids[0]]
    return 0 if cursors else None
