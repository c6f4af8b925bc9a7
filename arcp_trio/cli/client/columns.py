"""Lists for people: in columns, in as many lines for each row as the terminal needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arcp_trio.cli.client.output import Output
from arcp_trio.cli.text import cells, padded, safe_line

GAP: Final = "  "


async def write_list(rows: Sequence[Sequence[str]], out: Output) -> None:
    """Write a list whose first row is the heading."""
    await out.write(in_columns(rows, out.columns if out.is_terminal else None))


def in_columns(rows: Sequence[Sequence[str]], width: int | None) -> str:
    """Return the lines of a list whose first row is the heading.

    If the columns need more than `width`, which None does not limit, the row goes on in further
    lines, which are indented. The heading is left out where most columns have a line of their own.
    """
    clean = [[safe_line(cell) for cell in row] for row in rows]
    widths = [max(map(cells, column)) for column in zip(*clean, strict=True)]
    breaks = _broken(widths, width)
    shown = clean[1:] if 2 * len(breaks) > len(widths) else clean
    return "".join(f"{line}\n" for row in shown for line in _lines(row, widths, breaks))


def _broken(widths: Sequence[int], width: int | None) -> list[slice]:
    """Return which columns stand in which line."""
    breaks: list[slice] = []
    start = used = 0
    for place, needed in enumerate(widths):
        if width is not None and place > start and used + needed > width:
            breaks.append(slice(start, place))
            start, used = place, len(GAP)
        used += needed + len(GAP)
    return [*breaks, slice(start, len(widths))]


def _lines(row: Sequence[str], widths: Sequence[int], breaks: Sequence[slice]) -> list[str]:
    texts = [GAP.join(map(padded, row[part], widths[part])).rstrip() for part in breaks]
    first, *others = texts
    return [first, *(f"{GAP}{text}" for text in others if text)]
