"""Lists for people: in columns where there is room, else each entry on lines of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from arcp_trio.cli.text import cells, padded, safe_line

_GAP: Final = "  "


class Width(Protocol):
    """Where it is going to be written."""

    @property
    def is_terminal(self) -> bool:
        """Whether it has a width at all."""
        ...

    @property
    def columns(self) -> int:
        """How wide it is."""
        ...


def table(rows: Sequence[Sequence[str]], out: Width) -> list[str]:
    """Lay out rows, of which the first is the heading; only a terminal minds the width."""
    clean = [[safe_line(cell) for cell in row] for row in rows]
    widths = [max(cells(row[column]) for row in clean) for column in range(len(clean[0]))]
    if out.is_terminal and sum(widths) + len(_GAP) * (len(widths) - 1) > out.columns:
        return [line for row in clean[1:] for line in _stacked(row)]
    return [_GAP.join(map(padded, row, widths)).rstrip() for row in clean]


def _stacked(row: Sequence[str]) -> list[str]:
    first, *others = row
    return [first, *(f"{_GAP}{cell}" for cell in others if cell)]
