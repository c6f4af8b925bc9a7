"""What has to hold in the database after everything that was done to the nodes."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any, Final

import psycopg

from arcp_trio.store.packing import unpack_entries, unpack_items
from arcp_trio.store.records import Inline, LogItem, Mark, Range

_UNOWNED: Final = """
    SELECT job_id, job.node, node.state FROM arcp.job LEFT JOIN arcp.node USING (node)
    WHERE finished_at IS NULL AND job.node IS NOT NULL AND state IS DISTINCT FROM 'up'
"""
_PROMISED: Final = re.compile(
    rb'"type":"job.(accepted|subscribed)".*?"job_id":"([^"]+)"', re.DOTALL
)


def audit(database: str) -> None:
    """Check journals, logs and owners, once nothing happens any more."""
    with psycopg.connect(database) as db:
        db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        lengths = _check_journals(db)
        _check_logs(db, lengths)
        unowned = db.execute(_UNOWNED).fetchall()
        assert not unowned, f"jobs without a node that is up: {unowned}"


def _check_journals(db: psycopg.Connection[tuple[Any, ...]]) -> dict[str, int]:
    """Check that each journal is without a hole, and has one terminal, last; return lengths."""
    lengths: dict[str, int] = {}
    for jid, job_id, base, finished in db.execute(
        "SELECT jid, job_id, base, finished_at IS NOT NULL FROM arcp.job WHERE NOT expired"
    ).fetchall():
        due, ordinal, terminals = base, 0, 0
        for first, packed in db.execute(
            "SELECT first_index, entries FROM arcp.journal WHERE jid = %s AND last_index >= %s"
            " ORDER BY last_index",
            (jid, base),
        ).fetchall():
            for entry in unpack_entries(first, packed):
                if entry.index < base:
                    continue
                assert not terminals, f"{job_id} goes on behind its end"
                assert entry.index == due, f"{job_id} has {entry.index} where {due} is due"
                assert entry.ordinal > ordinal, f"{job_id}: the ordinal of {due} is not above"
                due, ordinal, terminals = due + 1, entry.ordinal, terminals + entry.terminal
        assert terminals == finished, f"{job_id}: {terminals} terminals"
        lengths[job_id] = due
    return lengths


def _check_logs(db: psycopg.Connection[tuple[Any, ...]], lengths: dict[str, int]) -> None:
    """Check that each session has each number once, and each journal's entries in order."""
    for sid, session_id, top, floor in db.execute(
        "SELECT sid, session_id, top, floor FROM arcp.session"
    ).fetchall():
        due, reached, before = None, defaultdict[str, int](int), list[LogItem]()
        for (packed,) in db.execute(
            "SELECT items FROM arcp.log WHERE sid = %s ORDER BY row", (sid,)
        ).fetchall():
            for item in unpack_items(packed):
                before.append(item)
                if isinstance(item, Mark):
                    if found := _PROMISED.search(item.tail):
                        job_id = found[2].decode()
                        # A subscription brings the history anew; an acceptance, at least the end.
                        again_from = lengths.get(job_id, 1) - 1 if found[1] == b"accepted" else 0
                        reached[job_id] = min(reached[job_id], again_from)
                    continue
                first = item.seq if isinstance(item, Inline) else item.first_seq
                count = 1 if isinstance(item, Inline) else item.count
                assert due in (None, first), f"{session_id} has {first} where {due} is due"
                due = first + count
                if isinstance(item, Range):
                    again = item.first_index < reached[item.job_id]
                    assert not again, f"{session_id} has an entry again: {before[-60:]}"
                    reached[item.job_id] = item.first_index + count
        assert due is None or due == top + 1 or due <= floor, f"{session_id}: {due}, not {top}"
        for job_id, index in reached.items():
            assert index <= lengths.get(job_id, index), f"{session_id} numbered {job_id} {index}"
