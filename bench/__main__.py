"""`python -m bench`: measure the families of rows that matter most, all of them, or some."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from bench import report
from bench.booking import booking
from bench.clients import clients
from bench.cluster import cluster
from bench.durable import durable
from bench.fanning_out import fan_out
from bench.figures import FULL, QUICK, USUAL, Family, Row, compare
from bench.growing import growth
from bench.idling import idle
from bench.leases import leases
from bench.listing import listing
from bench.peers import DURABLE, MEMORY
from bench.placing import placing
from bench.replaying import replay
from bench.results import streamed_result
from bench.round_trips import round_trips
from bench.starting import start
from bench.streaming import one_client
from bench.tokens import tokens
from bench.visiting import churn, handshakes

FAMILIES: Final[Mapping[str, Family]] = {
    "tokens": Family(tokens, most_runs=3),
    "round-trips": Family(round_trips),
    "handshakes": Family(handshakes),
    "churn": Family(churn),
    "idle": Family(idle, most_runs=1),
    "stream": Family(one_client),
    "fan-out": Family(fan_out, most_runs=3),
    "results": Family(streamed_result),
    "replay": Family(replay, most_runs=3),
    "client": Family(clients, sides=(MEMORY,)),
    "growth": Family(growth, most_runs=1, usual=False),
    "listing": Family(listing, most_runs=1, usual=False),
    "start": Family(start, most_runs=2, usual=False),
    "leases": Family(leases, sides=(MEMORY,), usual=False),
    "places": Family(placing, sides=(MEMORY,), usual=False),
    "durable": Family(durable, most_runs=1, sides=(DURABLE,), usual=False),
    "cluster": Family(cluster, most_runs=3, sides=(DURABLE,), usual=False),
    "ledger": Family(booking, sides=(MEMORY,), usual=False),
}
"""The families, in the order of their rows."""


def main() -> None:
    """Measure, print the table, and write it as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="all families, at their full size")
    size.add_argument("--quick", action="store_true", help="small, to see that all of it works")
    parser.add_argument("--runs", type=int, help="runs of each side (default 3, or 5 in full)")
    parser.add_argument("--json", type=Path, default=Path("bench.json"), metavar="FILE")
    arguments = parser.parse_args()
    unknown = set(arguments.families) - set(FAMILIES)
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}")

    extent = FULL if arguments.full else QUICK if arguments.quick else USUAL
    if arguments.runs:
        extent = attrs.evolve(extent, runs=arguments.runs)
    named = arguments.families or [
        name for name, family in FAMILIES.items() if family.usual or extent.complete
    ]
    rows: list[Row] = []
    print(report.heading(), flush=True)
    for name in named:
        for row in compare(FAMILIES[name], extent):
            print(report.line(row), flush=True)
            rows.append(row)
    arguments.json.write_text(report.as_json(rows), encoding="utf-8")
    print(f"\nwritten to {arguments.json}")


if __name__ == "__main__":
    main()
