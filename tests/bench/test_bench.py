"""The benchmarks run; no test checks how fast, as that depends on the machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT = Path(__file__).parents[2]
ALL = frozenset({"memory", "durable", "peer"})
OURS = frozenset({"memory", "durable"})
WAITS = ("p50", "p99")
PLACES = ("loop", "thread", "asyncio", "process, plain", "process, trio", "process, asyncio")

ROWS: Final[dict[str, dict[str, frozenset[str]]]] = {
    "stream": {
        "stream, 1 job to 1 client": ALL,
        "stream, 1 job to 1 client: server's time for 1,000": ALL,
        "on disk per event": frozenset({"durable"}),
    },
    "results": {"streamed result of 0.6 MB": ALL},
    "fan-out": {
        f"1 job to {many}{what}": ALL
        for many in ("1 subscriber", "10 subscribers", "100 subscribers")
        for what in ("", ": server's time for 1,000")
    },
    "tokens": {
        f"tokens, 50 sessions, each {pause} ms: {what}": ALL
        for pause in (20, 50)
        for what in (
            "delivered",
            "server's time for 1,000",
            *(f"after {moment}: {wait}" for moment in ("emission", "due") for wait in WAITS),
        )
    },
    "round-trips": {
        **{
            f"submit to result, {clients}: {what}": ALL
            for clients in ("1 client", "10 clients")
            for what in (*WAITS, "rate", "server's time for each")
        },
        **{f"submit to result, beside a stream: {wait}": OURS for wait in WAITS},
        **{f"write and sync 4 KiB: {wait}": frozenset({"durable"}) for wait in WAITS},
    },
    "handshakes": {
        f"{visit}, 16 at once{what}": ALL
        for visit in ("WebSocket upgrade", "connect, hello, bye")
        for what in ("", ": server's time for each")
    },
    "churn": {
        f"connect, hello, job, bye, {at_once} at once{what}": ALL
        for at_once in (1, 16)
        for what in ("", ": server's time for each")
    },
    "idle": {f"50 idle sessions: {what}": ALL for what in ("memory, each", "processor")},
    "replay": {
        "replay of 2,000 events": ALL,
        "replay of 2,000 events: server's time for 1,000": ALL,
    },
    "client": {
        "(what the server gives)": frozenset({"memory"}),
        "client, async for": frozenset({"memory", "peer"}),
        "client, on_event": frozenset({"memory", "peer"}),
    },
    "growth": {
        **{f"a short job, {sessions} open": ALL for sessions in ("1 session", "10 sessions")},
        "1,000 events, 1,000 in the session": ALL,
        "resume for 10 events, 1,000 in the session": ALL,
        **{f"a short job, {jobs} jobs kept": ALL for jobs in ("100", "1,000")},
    },
    "listing": {
        "100 of 2,000 jobs: p50": ALL,
        "100 of everybody's 2,000 jobs: p50": OURS,
        "none of 2,000 jobs: p50": ALL,
    },
    "start": {"start, nothing stored": ALL, "start, 200 parked sessions": frozenset({"durable"})},
    "leases": {
        **{
            f"check against 100 {kind}": frozenset({"memory"})
            for kind in ("paths", "deep paths", "URLs", "names")
        },
        **{f"subset, 100 of 100 {kind}": frozenset({"memory"}) for kind in ("paths", "deep paths")},
        **{f"subset, {stars} times ** in each": frozenset({"memory"}) for stars in (5, 10, 20, 40)},
    },
    "places": {f"submit to result, {place}: p50": frozenset({"memory"}) for place in PLACES},
    "durable": dict.fromkeys(
        (
            *(
                f"{what}: {wait}"
                for what in ("insert into SQLite", "step of a durable job")
                for wait in WAITS
            ),
            "200 steps in one job",
            *("emit, streamer", "emit, durable-streamer"),
            "restart with 20 jobs of 100 steps, until clients are let in",
            "restart with 20 jobs of 100 steps, until all go on",
        ),
        frozenset({"durable"}),
    ),
    "cluster": dict.fromkeys(
        (
            *(
                f"1 node on {store}: {what}"
                for store in ("SQLite", "PostgreSQL")
                for what in (
                    *("stream", "stream: server's time for 1,000"),
                    *(f"submit to result: {wait}" for wait in WAITS),
                )
            ),
            *(
                f"1 node on PostgreSQL: {what}: PostgreSQL's {cost}"
                for what in ("stream", "events one by one")
                for cost in ("time for 1,000", "log, each")
            ),
            "1 node on PostgreSQL: events one by one: server's time for 1,000",
            *(f"{nodes} on PostgreSQL: 16 streams" for nodes in ("1 node", "2 nodes", "3 nodes")),
            *(
                f"watch at {where}, after emission: {wait}"
                for where in ("the job's node", "another node")
                for wait in WAITS
            ),
            *(f"watch of 10 jobs at another node, after emission: {wait}" for wait in WAITS),
            "watch of 10 jobs at another node: server's time for 1,000",
            "a node with 20 jobs is killed, and declared dead after 2 s: all have ended",
            "a node with 50 sessions is killed: all are back at 2 others",
            "a node with 50 sessions is told to end: it has let go of them",
            *(
                f"a group of {events} of {sessions}: {what}"
                for events, sessions in (
                    ("1 event", "1 session"),
                    ("64 events", "1 session"),
                    ("1,024 events", "1 session"),
                    ("64 events", "16 sessions"),
                    ("1,024 events", "64 sessions"),
                )
                for what in ("SQLite", "PostgreSQL", "PostgreSQL's time")
            ),
        ),
        frozenset({"durable"}),
    ),
    "ledger": {
        f"{what}, {how}": frozenset({"memory"})
        for what in ("event", "short job")
        for how in ("booked in the ledger", "not booked")
    },
}
"""The sides that have each row, by family."""


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
@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=[pytest.mark.postgres] if family == "cluster" else [])
        for family in ROWS
    ],
)
def test_a_quick_run_measures_all_sides_in_every_row(family: str, tmp_path: Path) -> None:
    """Each row has a figure of each side that can do the task, and the ratios to the peer."""
    file = tmp_path / "bench.json"
    bench("--quick", "--json", str(file), family)
    measured: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    assert {row["row"]: frozenset(row["medians"]) for row in measured["rows"]} == ROWS[family]
    assert set(measured["on_disk"]) == ALL
    for row in measured["rows"]:
        medians = row["medians"]
        assert all(value > 0 for value in medians.values())
        others = set(medians) - {"peer"} if "peer" in medians else set()
        assert set(row["ratios"]) == {f"{side}/peer" for side in others}
        for side in others:
            better, worse = medians[side], medians["peer"]
            if row["unit"] in {"ms", "s", "KiB", "%"}:
                better, worse = worse, better
            assert row["ratios"][f"{side}/peer"] == pytest.approx(better / worse)
        assert 0 < (row["client_busy"] or 1) < 1.1


def test_every_family_is_listed() -> None:
    """The help names each family that the test above runs, and an unknown one is refused."""
    families = bench("--help").split("FAMILY", 2)[2].split("options:")[0]
    assert {name.strip() for name in families.split(",")} == set(ROWS)
    with pytest.raises(AssertionError, match="no such family: nonsense"):
        bench("nonsense")


@pytest.mark.real_tcp
def test_the_table_names_the_python_it_was_measured_with(tmp_path: Path) -> None:
    """The table names the version of Python."""
    lines = bench("--quick", "--json", str(tmp_path / "bench.json"), "stream").splitlines()
    assert lines[0].startswith(f"Python {sys.version.split()[0]}, ")
    assert any(line.startswith("| stream, 1 job to 1 client, events/s ") for line in lines)
