"""The benchmarks run; no test checks how fast, as that depends on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> str:
    """Run the benchmarks in a process, as their users do."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.real_tcp
def test_a_quick_run_measures_all_sides_in_every_row():
    """Each row has a figure of each side that can do the task, and their ratio."""
    rows: list[dict[str, Any]] = [
        json.loads(line) for line in bench("--quick", "--json").splitlines()
    ]
    kinds = ("plain", "trio", "asyncio")
    latencies = [f"submit to result, {n} in flight" for n in (1, 16)]
    assert {row["row"]: set(row["figures"]) for row in rows} == {
        "stream, 1 job to 1 client": {"memory", "durable", "peer"},
        "on disk per event": {"durable"},
        "streamed result of 0.6 MB": {"memory", "durable", "peer"},
        **{
            f"{row}: {what}": {"memory", "durable", "peer"}
            for row in latencies
            for what in ("p50", "p99", "rate")
        },
        **{
            f"submit to result, beside a stream: {what}": {"memory", "durable"}
            for what in ("p50", "p99")
        },
        **{
            f"1 job to {many}": {"memory", "durable", "peer"}
            for many in ("1 subscriber", "10 subscribers", "100 subscribers")
        },
        "100 of 2,000 jobs: p50": {"memory", "durable", "peer"},
        "100 of everybody's 2,000 jobs: p50": {"memory", "durable"},
        "none of 2,000 jobs: p50": {"memory", "durable", "peer"},
        "replay of 2,000 events": {"memory", "durable", "peer"},
        "start, nothing stored": {"memory", "durable", "peer"},
        "start, 200 parked sessions": {"durable"},
        "handshakes, 4 at once": {"memory", "durable", "peer"},
        **{
            f"20 idle sessions: {what}": {"memory", "durable", "peer"}
            for what in ("memory, each", "processor")
        },
        "(what the server gives)": {"memory"},
        **{f"client, {way}": {"memory", "peer"} for way in ("async for", "on_event")},
        **{
            f"check against 100 {kind}": {"memory"}
            for kind in ("paths", "deep paths", "URLs", "names")
        },
        **{f"subset, 100 of 100 {kind}": {"memory"} for kind in ("paths", "deep paths")},
        **{f"subset, {stars} times ** in each": {"memory"} for stars in (5, 10, 20, 40)},
        **{
            f"submit to result, {place}: p50": {"memory"}
            for place in ("loop", "thread", "asyncio", *(f"process, {kind}" for kind in kinds))
        },
    }
    for row in rows:
        figures = row["figures"]
        for sides, ratio in row["ratios"].items():
            better, worse = sides.split("/")
            if row["unit"] in {"ms", "s", "KiB", "%"}:
                better, worse = worse, better
            assert ratio == pytest.approx(figures[better] / figures[worse])
        assert len(row["ratios"]) == {1: 0, 2: 1, 3: 3}[len(figures)]
        assert all(0 < busy < 1.1 for busy in row["client_busy"].values())


@pytest.mark.real_tcp
def test_the_table_names_the_python_it_was_measured_with():
    """The table names the version of Python."""
    lines = bench("--quick", "stream").splitlines()
    assert lines[0].startswith(f"Python {sys.version.split()[0]}, ")
    assert lines[3].startswith("stream, 1 job to 1 client")
