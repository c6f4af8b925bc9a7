"""Lists for people: in columns if the terminal is wide enough, else with each cell on a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arcp_trio.cli.client.output import Output
from arcp_trio.cli.text import cells, padded, safe_line

_GAP: Final = "  "


async def write_list(rows: Sequence[Sequence[str]], out: Output) -> None:
    """Write a list whose first row is the heading."""
    await out.write(in_columns(rows, out.columns if out.is_terminal else None))


def in_columns(rows: Sequence[Sequence[str]], width: int | None) -> str:
    """Return the lines of a list whose first row is the heading.

    If the columns need more than `width`, which None does not limit, the heading is left out, and
    the cells of each row stand below each other.
    """
    clean = [[safe_line(cell) for cell in row] for row in rows]
    widths = [max(map(cells, column)) for column in zip(*clean, strict=True)]
    if width is not None and sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        lines = [line for row in clean[1:] for line in _stacked(row)]
    else:
        lines = [_GAP.join(map(padded, row, widths)).rstrip() for row in clean]
    return "".join(f"{line}\n" for line in lines)


def _stacked(row: Sequence[str]) -> list[str]:
    first, *others = row
    return [first, *(f"{_GAP}{cell}" for cell in others if cell)]
