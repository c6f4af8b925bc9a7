"""What an operation costs the server's processor when there is more and more of everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench.client import Client
from bench.figures import Extent, Figure, stopwatch
from bench.peers import Server
from bench.replaying import drop, resumed
from bench.round_trips import run_jobs
from bench.streaming import stream

SESSIONS: Final = (1, 10, 100, 1_000)
HISTORY: Final = (1_000, 10_000, 100_000, 1_000_000)
JOBS: Final = (100, 1_000, 10_000, 100_000)
TRIPS: Final = 1_000
RESUMES: Final = 20
_MISSED: Final = 10
"""How many of the last events a client that resumes has not received."""


def beside_sessions(server: Server, extent: Extent) -> Iterator[Figure]:
    """Measure short jobs of one client beside sessions that are idle."""
    trips = extent.of(TRIPS)
    with ExitStack() as stack:
        client = stack.enter_context(Client(server.url))
        run_jobs([client], trips)  # warms up
        others = 0
        for sessions in extent.crowds(*SESSIONS):
            while others + 1 < sessions:
                others += 1
                token = server.principal(others)
                stack.enter_context(Client(server.url, token=token))
            row = f"a short job, {sessions:,} session{'s' if sessions > 1 else ''} open"
            yield _cost(server, row, trips, partial(run_jobs, [client], trips))


def after_history(server: Server, extent: Extent) -> Iterator[Figure]:
    """Measure events of a session that has a long history, and resumes of it near its end."""
    events, resumes = extent.of(10_000), extent.of(RESUMES)
    client = Client(server.url)
    stream(client, 1_000)  # warms up
    for history in HISTORY:
        if history <= extent.growth:
            while client.seq < history:
                stream(client, min(50_000, history - client.seq))
            row = f"1,000 events, {history:,} in the session"
            yield _cost(server, row, events / 1_000, partial(stream, client, events))
            row = f"resume for {_MISSED} events, {history:,} in the session"
            with stopwatch(server) as watch:
                for _ in range(resumes):
                    drop(client)
                    client = resumed(server, client, after=client.seq - _MISSED)
            yield watch.cost(row, resumes)


def after_jobs(server: Server, extent: Extent) -> Iterator[Figure]:
    """Measure short jobs when many finished ones are kept."""
    trips = extent.of(TRIPS)
    with Client(server.url) as client:
        run_jobs([client], trips)  # warms up
        kept = trips
        for jobs in JOBS:
            if jobs <= extent.growth:
                run_jobs([client], max(0, jobs - kept), in_flight=32)
                kept = max(jobs, kept) + trips
                row = f"a short job, {jobs:,} jobs kept"
                yield _cost(server, row, trips, partial(run_jobs, [client], trips))


def growth(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure the same operations beside more and more sessions, events and jobs."""
    return [
        *beside_sessions(server, extent),
        *after_history(server, extent),
        *after_jobs(server, extent),
    ]


def _cost(server: Server, row: str, count: float, work: Callable[[], object]) -> Figure:
    with stopwatch(server) as watch:
        work()
    return watch.cost(row, count)
