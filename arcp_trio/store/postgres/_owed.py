"""What a session is owed: entries of many journals, merged, by one statement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from arcp_trio.store.interface import JournalTrimmed, Owed
from arcp_trio.store.packing import unpack_entries
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.snapshot import JOURNAL_PAGE

_ROWS: Final = 64
"""Rows of all journals that are read at a time."""

# Rows whose turn comes only after `size` bytes are told without their entries.
_STATEMENT: Final = f"""
    SELECT job_id, trimmed, cursor, first_index, last_index, first_ordinal,
        CASE WHEN before < %(size)s THEN entries END
    FROM (
        SELECT *, sum(length(entries)) OVER (ORDER BY first_ordinal) - length(entries) AS before
        FROM (
            SELECT asked.job_id, (base IS NULL OR cursor < base) AS trimmed, cursor, piece.*
            FROM unnest(%(jobs)s::text[], %(cursors)s::bigint[]) AS asked (job_id, cursor)
            LEFT JOIN retained ON retained.job_id = asked.job_id
            LEFT JOIN LATERAL (
                SELECT first_index, last_index, first_ordinal, entries FROM journal
                WHERE journal.jid = retained.jid AND last_index >= cursor
                ORDER BY last_index LIMIT {JOURNAL_PAGE}
            ) AS piece ON true
            WHERE first_ordinal IS NOT NULL OR base IS NULL OR cursor < base
            ORDER BY trimmed DESC, first_ordinal LIMIT %(rows)s
        ) AS found
    ) AS sized ORDER BY trimmed DESC, first_ordinal""".encode()  # noqa: S608


def owed(db: Database, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
    """Read the first entries at or after `cursors`; see `Reads.owed`."""
    read_rows, read_size = _ROWS, max(size, 1)
    while cursors:
        rows = db.execute(
            _STATEMENT,
            {
                "jobs": [*cursors],
                "cursors": [*cursors.values()],
                "size": read_size,
                "rows": read_rows,
            },
            binary=True,
        ).fetchall()
        if rows and rows[0][1]:
            raise JournalTrimmed(rows[0][0])
        found = _merged(rows, more=len(rows) == read_rows)
        if found or not rows:
            return _fitting(found[:entries], size)
        # All that was read comes after something that was not.
        read_rows, read_size = 4 * read_rows, 4 * read_size
    return []


def _merged(rows: Sequence[tuple[Any, ...]], *, more: bool) -> list[Owed]:
    """Return the entries that come before all that was not read, in their order."""
    end: float = rows[-1][5] if more else math.inf
    found: list[Owed] = []
    read: Counter[str] = Counter()
    for job_id, _, cursor, first_index, _, first_ordinal, packed in rows:
        if packed is None:
            end = min(end, first_ordinal)
            continue
        skipped = max(0, cursor - first_index)
        found += [
            (job_id, entry) for entry in islice(unpack_entries(first_index, packed), skipped, None)
        ]
        read[job_id] += 1
        if read[job_id] == JOURNAL_PAGE:
            end = min(end, found[-1][1].ordinal + 1)
    return sorted((each for each in found if each[1].ordinal < end), key=_ordinal)


def _ordinal(owed: Owed) -> int:
    return owed[1].ordinal


def _fitting(found: Sequence[Owed], size: int) -> Sequence[Owed]:
    """Return the first of these entries, at least one, that add up to at most `size` bytes."""
    for count, (_, entry) in enumerate(found):
        size -= len(entry.tail)
        if size < 0 and count:
            return found[:count]
    return found
