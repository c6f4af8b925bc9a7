"""Printing rows."""

from __future__ import annotations

import json
import os
import platform
from typing import Final

from bench.figures import Row
from bench.peers import DURABLE, MEMORY, PEER, SIDES

_RATIOS: Final = ((DURABLE, MEMORY), (DURABLE, PEER), (MEMORY, PEER))
_LINE: Final = "{:34}" + "{:>22}" * len(SIDES) + "{:>16}" * len(_RATIOS) + "{:>8}{:>9}"
_DIGITS: Final = {"ms": 2, "s": 2, "µs": 1, "KiB": 1, "%": 2}


def heading() -> str:
    """Return the machine and the Python version, and the names of the columns."""
    machine = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} processors"
    )
    ratios = [_ratio_name(*sides) for sides in _RATIOS]
    return machine + "\n\n" + _LINE.format("", *SIDES, *ratios, "client", "best of")


def line(row: Row) -> str:
    """Return a row for people."""
    busy = _busy(row)
    return _LINE.format(
        row.name,
        *(_value(row, side) for side in SIDES),
        *(_ratio(row.ratio(*sides)) for sides in _RATIOS),
        f"{max(busy.values()):.0%}" if busy else "",
        row.runs,
    )


def _ratio_name(side: str, other: str) -> str:
    return f"{side}/{other}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _value(row: Row, side: str) -> str:
    figure = row.figures.get(side)
    return "" if figure is None else f"{figure.value:,.{_DIGITS.get(row.unit, 0)}f} {row.unit}"


def _busy(row: Row) -> dict[str, float]:
    figures = row.figures.items()
    return {side: each.client_busy for side, each in figures if each.client_busy is not None}


def json_line(row: Row) -> str:
    """Return a row as JSON."""
    ratios = {_ratio_name(*sides): row.ratio(*sides) for sides in _RATIOS}
    return json.dumps(
        {
            "row": row.name,
            "unit": row.unit,
            "figures": {side: figure.value for side, figure in row.figures.items()},
            "ratios": {name: ratio for name, ratio in ratios.items() if ratio is not None},
            "client_busy": _busy(row),
            "runs": row.runs,
            "python": platform.python_version(),
        }
    )
