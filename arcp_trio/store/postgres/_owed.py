"""What a session is owed: entries of many journals, merged, most often by one statement."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import attrs

from arcp_trio.store.interface import JournalTrimmed
from arcp_trio.store.packing import unpack_entries
from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.records import Owed
from arcp_trio.store.snapshot import JOURNAL_PAGE

_ROWS: Final = 64
"""Rows of all journals that are read at a time."""

# Rows whose turn comes only after `size` bytes are told without their entries.
_STATEMENT: Final = b"""
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
                ORDER BY last_index LIMIT %(page)s
            ) AS piece ON true
            WHERE first_ordinal IS NOT NULL OR base IS NULL OR cursor < base
            ORDER BY trimmed DESC, first_ordinal LIMIT %(rows)s
        ) AS found
    ) AS sized ORDER BY trimmed DESC, first_ordinal"""


@attrs.frozen
class _Piece:
    """Entries of some journals, in their order."""

    found: list[Owed]
    whole: bool
    """Nothing of the journals comes after them."""


def owed(db: Database, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
    """Read the first entries at or after `cursors`; see `Reads.owed`."""
    found: list[Owed] = []
    places, rows, room = dict(cursors), _ROWS, max(size, 1)
    while places and len(found) < entries and room > 0:
        try:
            piece = _read(db, places, rows, room)
        except JournalTrimmed:
            if not found:
                raise
            break  # what comes before is good; the next call meets the gap first
        found += piece.found
        if piece.whole:
            break
        if piece.found:
            room -= sum(len(entry.tail) for _, entry in piece.found)
            places |= {job_id: entry.index + 1 for job_id, entry in piece.found}
        else:  # all that was read comes after something that was not
            rows, room = 4 * rows, 4 * room
    return _fitting(found[:entries], size)


def _read(db: Database, cursors: Mapping[str, int], most: int, size: int) -> _Piece:
    page = max(JOURNAL_PAGE, most // len(cursors))
    rows = db.execute(
        _STATEMENT,
        {
            "jobs": [*cursors],
            "cursors": [*cursors.values()],
            "size": size,
            "page": page,
            "rows": most,
        },
        binary=True,
    ).fetchall()
    if rows and rows[0][1]:
        raise JournalTrimmed(rows[0][0])
    end: float = rows[-1][5] if len(rows) == most else math.inf
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
        if read[job_id] == page:
            end = min(end, found[-1][1].ordinal + 1)
    # What was not read may begin at `end`.
    return _Piece(
        sorted((each for each in found if each[1].ordinal < end), key=_ordinal),
        whole=end == math.inf,
    )


def _ordinal(owed: Owed) -> int:
    return owed[1].ordinal


def _fitting(found: Sequence[Owed], size: int) -> Sequence[Owed]:
    """Return the first of these entries, at least one, that add up to at most `size` bytes."""
    for count, (_, entry) in enumerate(found):
        size -= len(entry.tail)
        if size < 0 and count:
            return found[:count]
    return found
