"""Jobs that end at once: how long from a submit to its result."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Final

from bench.client import Client
from bench.figures import Figure, stopwatch
from bench.peers import Server

TRIPS: Final = 4_000
IN_FLIGHT: Final = (1, 16)


def round_trips(server: Server, share: float) -> Sequence[Figure]:
    """Latency and rate, one job at a time and with several in flight."""
    trips = int(TRIPS * share)
    figures: list[Figure] = []
    with Client(server.url) as client:
        for in_flight in IN_FLIGHT:
            _latencies(client, trips // 10, in_flight)  # warms up
            with stopwatch() as watch:
                latencies = sorted(_latencies(client, trips, in_flight))
            row = f"submit to result, {in_flight} in flight"
            figures += [
                Figure(
                    f"{row}: p{percent}",
                    "ms",
                    1000 * latencies[math.ceil(percent / 100 * trips) - 1],
                    less_is_better=True,
                    client_busy=watch.busy,
                )
                for percent in (50, 99)
            ]
            rate = trips / watch.seconds
            figures.append(Figure(f"{row}: rate", "jobs/s", rate, client_busy=watch.busy))
    return figures


def _latencies(client: Client, trips: int, in_flight: int) -> list[float]:
    """Keep so many jobs in flight; each carries the time of its submit there and back."""
    submitted = 0
    latencies: list[float] = []
    while len(latencies) < trips:
        while submitted < trips and submitted - len(latencies) < in_flight:
            client.submit("echo", time.perf_counter())
            submitted += 1
        message = json.loads(client.receive())
        if message["type"] == "job.result":
            began = message["payload"]["result"]["echo"]
            latencies.append(time.perf_counter() - began)
        elif message["type"] != "job.accepted":
            raise RuntimeError(f"neither an acceptance nor a result: {message}")
    return latencies
