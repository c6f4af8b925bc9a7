"""`python -m bench`: measure all rows, or those of the named families."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Final

from bench import report
from bench.clients import clients
from bench.crowds import handshakes, idle
from bench.fanning_out import fan_out
from bench.figures import QUICK_SHARE, Family, compare
from bench.leases import leases
from bench.listing import listing
from bench.peers import MEMORY
from bench.placing import placing
from bench.replaying import replay
from bench.results import streamed_result
from bench.round_trips import round_trips
from bench.starting import start
from bench.streaming import one_client

FAMILIES: Final[Mapping[str, Family]] = {
    "stream": Family(one_client),
    "results": Family(streamed_result),
    "fan-out": Family(fan_out, most_runs=2),
    "round-trips": Family(round_trips),
    "replay": Family(replay, most_runs=2),
    "listing": Family(listing, most_runs=1),
    "start": Family(start, most_runs=2),
    "handshakes": Family(handshakes),
    "idle": Family(idle, most_runs=1),
    "client": Family(clients, sides=(MEMORY,)),
    "leases": Family(leases, sides=(MEMORY,)),
    "places": Family(placing, sides=(MEMORY,)),
}
"""The families, in the order of their rows."""


def main() -> None:
    """Measure, and print the rows."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    parser.add_argument("--runs", type=int, default=5, help="runs of each side (default 5)")
    parser.add_argument("--quick", action="store_true", help="one small run, to see that it works")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    arguments = parser.parse_args()
    unknown = set(arguments.families) - set(FAMILIES)
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}")

    runs, share = (1, QUICK_SHARE) if arguments.quick else (arguments.runs, 1.0)
    if not arguments.json:
        print(report.heading(), flush=True)
    for name in arguments.families or FAMILIES:
        for row in compare(FAMILIES[name], runs=runs, share=share):
            print(report.json_line(row) if arguments.json else report.line(row), flush=True)


if __name__ == "__main__":
    main()
