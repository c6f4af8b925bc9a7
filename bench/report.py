"""How comparisons are printed."""

from __future__ import annotations

import json
import os
import platform

from bench.figures import Comparison, Figure

_LINE = "{:34}{:>18}{:>18}{:>9}{:>8}"


def heading(runs: int) -> str:
    """What the figures were measured with, and the names of the columns."""
    machine = (
        f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} processors, best of {runs}"
    )
    return machine + "\n\n" + _LINE.format("", "ours", "peer", "ratio", "client")


def line(row: Comparison) -> str:
    """A row for people."""
    return _LINE.format(
        row.ours.row,
        _value(row.ours),
        _value(row.peer),
        f"{row.ratio:.1f}x",
        f"{row.ours.client_busy:.0%}",
    )


def _value(figure: Figure) -> str:
    digits = 2 if figure.unit == "ms" else 0
    return f"{figure.value:,.{digits}f} {figure.unit}"


def json_line(row: Comparison, runs: int) -> str:
    """A row for programs."""
    return json.dumps(
        {
            "row": row.ours.row,
            "unit": row.ours.unit,
            "ours": row.ours.value,
            "peer": row.peer.value,
            "ratio": row.ratio,
            "client_busy": {"ours": row.ours.client_busy, "peer": row.peer.client_busy},
            "runs": runs,
            "python": platform.python_version(),
        }
    )
