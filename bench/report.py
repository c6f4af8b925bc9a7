"""The table, and the same figures as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.figures import Row
from bench.peers import DURABLE, MEMORY, ON_DISK, PEER, SIDES

_RATIOS: Final = ((DURABLE, PEER), (MEMORY, PEER))
_NAME: Final = 58
_WIDTH: Final = 12
_DIGITS: Final = {"ms": 3, "s": 2, "µs": 1, "KiB": 1, "%": 2}


def heading() -> str:
    """Return the machine, what each side keeps on disk, and the names of the columns."""
    columns = [*SIDES, *(_ratio_name(*sides) for sides in _RATIOS), "client", "runs"]
    disk = "\n".join(f"- {side}: {kept}" for side, kept in ON_DISK.items())
    return "\n".join(
        [
            f"{_machine()}. On disk:\n",
            f"{disk}\n",
            _cells("", *columns),
            "| --- |" + " ---: |" * len(columns),
        ]
    )


def line(row: Row) -> str:
    """Return a row of the table."""
    runs = max(len(values) for values in row.values.values())
    return _cells(
        f"{row.name}, {row.unit}",
        *(_value(row, side) for side in SIDES),
        *(_ratio(row.ratio(*sides)) for sides in _RATIOS),
        "" if row.client_busy is None else f"{row.client_busy:.0%}",
        str(runs),
    )


def as_json(rows: Sequence[Row]) -> str:
    """Return all rows as JSON, with the value of each run."""
    return json.dumps(
        {
            "machine": _machine(),
            "on_disk": ON_DISK,
            "rows": [
                {
                    "row": row.name,
                    "unit": row.unit,
                    "medians": {side: row.median(side) for side in row.values},
                    "ratios": {
                        _ratio_name(*sides): ratio
                        for sides in _RATIOS
                        if (ratio := row.ratio(*sides)) is not None
                    },
                    "runs": row.values,
                    "client_busy": row.client_busy,
                }
                for row in rows
            ],
        },
        ensure_ascii=False,
        indent=1,
    )


def _machine() -> str:
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    return (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} processors, load {load}"
    )


def _cells(name: str, *cells: str) -> str:
    return "| " + " | ".join([f"{name:{_NAME}}", *(f"{cell:>{_WIDTH}}" for cell in cells)]) + " |"


def _ratio_name(side: str, other: str) -> str:
    return f"{side}/{other}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def _value(row: Row, side: str) -> str:
    median = row.median(side)
    return "" if median is None else f"{median:,.{_DIGITS.get(row.unit, 0)}f}"
