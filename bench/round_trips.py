"""Jobs that end at once: the time from a submit to its result."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from bench.client import Client, arrivals
from bench.figures import Extent, Figure, percentiles, stopwatch
from bench.peers import DURABLE, PEER, Server
from bench.streaming import EVENTS, stream

TRIPS: Final = 10_000
CLIENTS: Final = (1, 10, 100)
TRIPS_BESIDE: Final = 1_000
SYNCS: Final = 1_000
_SECONDS_TO_TALK: Final = 10.0


def round_trips(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure latency, rate and cost, for clients with one job each, and beside a stream."""
    figures: list[Figure] = []
    for clients in extent.crowds(*CLIENTS):
        figures += _trips(server, clients, extent)
    if server.side == DURABLE:
        figures += percentiles("write and sync 4 KiB", _syncs(server.folder, extent.of(SYNCS)))
    if server.side != PEER:  # the peer answers only after the stream
        figures += _trips_beside(server, extent)
    return figures


def _trips(server: Server, count: int, extent: Extent) -> Sequence[Figure]:
    trips = max(extent.of(TRIPS), count)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(Client(server.url, token=server.principal(number)))
            for number in range(count)
        ]
        run_jobs(clients, trips // 10)  # warms up
        with stopwatch(server) as watch:
            seconds = run_jobs(clients, trips)
    row = f"submit to result, {count} client{'s' if count > 1 else ''}"
    return [
        *percentiles(row, seconds, watch.busy),
        watch.rate(f"{row}: rate", "jobs/s", trips),
        watch.cost(f"{row}: server's time for each", trips),
    ]


def run_jobs(clients: Sequence[Client], jobs: int, *, in_flight: int = 1) -> Sequence[float]:
    """Run jobs that end at once, this many of each client at a time; return how long each took.

    With several in flight, a job's time counts from the last submit of its client.
    """
    seconds: list[float] = []
    began: dict[Client, float] = {}
    left = jobs

    def submit(client: Client) -> None:
        nonlocal left
        if left:
            left -= 1
            began[client] = time.perf_counter()
            client.submit("echo", "something")

    for _ in range(in_flight):
        for client in clients:
            submit(client)
    if jobs:
        for client, frames in arrivals(clients):
            for frame in frames:
                if b'"job.result"' in frame:
                    seconds.append(time.perf_counter() - began[client])
                    submit(client)
            if len(seconds) == jobs:
                break
    return seconds


def _syncs(folder: Path, times: int) -> Sequence[float]:
    """Return how long the disk takes to keep a page, without a store around it."""
    seconds: list[float] = []
    with (folder / "sync").open("wb", buffering=0) as file:
        for _ in range(times):
            began = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file)
            seconds.append(time.perf_counter() - began)
    return seconds


def _trips_beside(server: Server, extent: Extent) -> Sequence[Figure]:
    with Client(server.url) as client, _stream_beside(server.url), stopwatch() as watch:
        seconds = run_jobs([client], extent.of(TRIPS_BESIDE))
    return percentiles("submit to result, beside a stream", seconds, watch.busy)


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
