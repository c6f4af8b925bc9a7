"""The format of packed rows: MessagePack, with fields by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from arcp_trio.store.first_numbers import Run
from arcp_trio.store.records import Entry, Inline, LogItem, Mark, Range

_PackedItems: TypeAlias = tuple[
    list[str],
    list[tuple[int, int, int, int]],
    list[tuple[int, bytes]],
    list[tuple[int, int, bytes]],
]
_PackedRanges: TypeAlias = tuple[
    list[str], list[tuple[int, int, int, int]], msgspec.Raw, msgspec.Raw
]


ROW_ENTRIES: Final = 256
"""Entries in one row of a journal, at most: a reader unpacks all of a row."""
ROW_BYTES: Final = 256 * 1024
"""Bytes in one row of a journal, at most, unless the row is a single entry."""


class _PackedEntry(msgspec.Struct, array_like=True, gc=False):
    """An entry but for its index; what is left out at the end has its default."""

    ordinal: int
    tail: bytes
    feature: str | None
    terminal: bool
    child: str | None
    once: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode_entries = msgspec.msgpack.Decoder(list[_PackedEntry]).decode
_decode_items = msgspec.msgpack.Decoder(_PackedItems).decode
_decode_ranges = msgspec.msgpack.Decoder(_PackedRanges).decode
_decode_digests = msgspec.msgpack.Decoder(list[tuple[int, bytes]]).decode
_decode_runs = msgspec.msgpack.Decoder(list[Run]).decode
_place = attrgetter("first_place")


def journal_rows(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Split entries into as many as fit into one row at a time."""
    start = size = 0
    for place, entry in enumerate(entries):
        if place - start == ROW_ENTRIES or (size and size + len(entry.tail) > ROW_BYTES):
            yield entries[start:place]
            start, size = place, 0
        size += len(entry.tail)
    yield entries[start:]


def pack_entries(entries: Sequence[Entry]) -> bytes:
    """Pack consecutive entries of one journal."""
    return _encode(
        [
            (e.ordinal, e.tail, e.feature, e.terminal, e.child, True)
            if e.once
            else (e.ordinal, e.tail, e.feature, e.terminal, e.child)
            for e in entries
        ]
    )


def unpack_entries(first_index: int, packed: bytes) -> Iterator[Entry]:
    """Unpack entries of which the first has the index `first_index`."""
    for index, e in enumerate(_decode_entries(packed), first_index):
        yield Entry(index, e.ordinal, e.tail, e.feature, e.terminal, e.child, e.once)


def pack_items(items: Sequence[LogItem]) -> bytes:
    """Pack a batch of a log, kind by kind; the id of each job is in it once."""
    jobs: dict[str, int] = {}
    ranges: list[tuple[int, int, int, int]] = []
    inlines: list[tuple[int, bytes]] = []
    marks: list[tuple[int, int, bytes]] = []
    for item in items:
        match item:
            case Range():
                number = jobs.setdefault(item.job_id, len(jobs))
                ranges.append((item.first_seq, number, item.first_index, item.count))
            case Inline():
                inlines.append((item.seq, item.tail))
            case Mark():
                marks.append((item.after_seq, item.row, item.tail))
    return _encode((list(jobs), ranges, inlines, marks))


def unpack_items(packed: bytes) -> list[LogItem]:
    """Unpack a batch, in the order of the places; items of one place keep their order."""
    jobs, ranges, inlines, marks = _decode_items(packed)
    items: list[LogItem] = [
        Range(seq, jobs[number], index, count) for seq, number, index, count in ranges
    ]
    items += [Inline(*inline) for inline in inlines]
    items += [Mark(*mark) for mark in marks]
    if inlines or marks:
        items.sort(key=_place)
    return items


def numbered_in(packed: bytes) -> Iterator[tuple[str, Run]]:
    """Unpack the runs that a batch numbered, each with the id of its job."""
    jobs, ranges, _, _ = _decode_ranges(packed)
    for seq, number, index, count in ranges:
        yield jobs[number], (seq, index, count)


def pack_digests(digests: Sequence[tuple[int, bytes]]) -> bytes:
    """Pack indexes and digests of events."""
    return _encode(digests)


def unpack_digests(packed: bytes) -> list[tuple[int, bytes]]:
    """Unpack indexes and digests of events."""
    return _decode_digests(packed)


def pack_runs(runs: Sequence[Run]) -> bytes:
    """Pack the numbers of one job."""
    return _encode(runs)


def unpack_runs(packed: bytes) -> list[Run]:
    """Unpack the numbers of one job."""
    return _decode_runs(packed)
