"""Jobs that end at once: the time from a submit to its result."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Final

from bench.client import Client
from bench.figures import Figure, stopwatch
from bench.peers import PEER, Server
from bench.streaming import EVENTS, stream

TRIPS: Final = 4_000
IN_FLIGHT: Final = (1, 16)
TRIPS_BESIDE: Final = 1_000
_SECONDS_TO_TALK: Final = 10.0


def round_trips(server: Server, share: float) -> Sequence[Figure]:
    """Measure latency and rate, with one job and with several in flight, and beside a stream."""
    trips = int(TRIPS * share)
    figures: list[Figure] = []
    with Client(server.url) as client:
        for in_flight in IN_FLIGHT:
            row = f"submit to result, {in_flight} in flight"
            _latencies(client, trips // 10, in_flight)  # warms up
            with stopwatch() as watch:
                latencies = _latencies(client, trips, in_flight)
            figures += _percentiles(row, latencies, watch.busy)
            rate = trips / watch.seconds
            figures.append(Figure(f"{row}: rate", "jobs/s", rate, client_busy=watch.busy))
        if server.side != PEER:  # the peer answers only after the stream
            with _stream_beside(server.url), stopwatch() as watch:
                latencies = _latencies(client, int(TRIPS_BESIDE * share), 1)
            figures += _percentiles("submit to result, beside a stream", latencies, watch.busy)
    return figures


def _percentiles(row: str, latencies: Sequence[float], client_busy: float) -> Sequence[Figure]:
    ordered = sorted(latencies)
    return [
        Figure(
            f"{row}: p{percent}",
            "ms",
            1000 * ordered[math.ceil(percent / 100 * len(ordered)) - 1],
            less_is_better=True,
            client_busy=client_busy,
        )
        for percent in (50, 99)
    ]


@contextmanager
def _stream_beside(url: str) -> Generator[None]:
    """Have another client, in a process of its own, receive a stream during the block."""
    spawning = get_context("spawn")
    talking = spawning.Event()
    process = spawning.Process(target=_listen, args=(url, talking), daemon=True)
    process.start()
    try:
        if not talking.wait(_SECONDS_TO_TALK):
            raise RuntimeError("there is no stream")
        yield
    finally:
        process.kill()
        process.join()


def _listen(url: str, talking: Event) -> None:
    with Client(url) as client:
        stream(client, EVENTS // 100)
        talking.set()
        while True:
            stream(client, EVENTS)


def _latencies(client: Client, trips: int, in_flight: int) -> list[float]:
    """Keep this many jobs in flight; each job's input and result is the time of its submit."""
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
