"""Nodes on one PostgreSQL: beside SQLite, one to three of them, a watch elsewhere, a take-over."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psycopg

from arcp_trio.store.postgres.administering import make_schema
from bench.client import Client, arrivals
from bench.figures import Extent, Figure, percentiles, stopwatch
from bench.following import LEAD_SECONDS, SENT, follow
from bench.groups import groups
from bench.peers import DURABLE, TOKENS, Server
from bench.round_trips import run_jobs
from bench.storming import leave, storm
from bench.streaming import MESSAGE_CHARACTERS, stream
from tests.postgres_server import PostgresServer, own_server

NODES: Final = (1, 2, 3)
CROWD: Final = 16
"""Sessions that stream at once, in all."""
EVENTS: Final = 20_000
"""Events of each of them."""
TRIPS: Final = 2_000
TICKS: Final = 1_000
TICK_SECONDS: Final = 0.01
LEAST_EVENTS: Final = 20_000
LEAST_TICKS: Final = 100
"""Fewer events, in a stream or one by one, would take PostgreSQL less processor time than the 10 ms
in which the system counts it."""
MANY_SESSIONS: Final = 10_000
JOBS: Final = 1_000
"""Jobs that a node has when it is killed."""


class _Node(Server):
    """A node on a database."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(DURABLE, folder)
        self._name = name

    def kill(self) -> None:
        """Kill the process."""
        os.kill(self.pid, signal.SIGKILL)

    def _store(self) -> tuple[str, ...]:
        return (f"--node={self._name}",)


class _Meter:
    """What a PostgreSQL needs for what is done in a block, each time that it is asked."""

    def __init__(self, database: PostgresServer) -> None:
        self._database = database
        self._began = self._now()

    def figures(self, row: str, events: int) -> Sequence[Figure]:
        """Return what each event has cost since the meter was made."""
        seconds, log = (b - a for a, b in zip(self._began, self._now(), strict=True))
        time_row, log_row = f"{row}: PostgreSQL's time for 1,000", f"{row}: PostgreSQL's log, each"
        return [
            Figure(time_row, "ms", 1e6 * seconds / events, less_is_better=True),
            Figure(log_row, "bytes", log / events, less_is_better=True),
        ]

    def _now(self) -> tuple[float, float]:
        with psycopg.connect(self._database.url()) as db:
            row = db.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return self._database.processor_seconds(), float(row[0])


def cluster(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure the server, which is on SQLite, and then nodes on PostgreSQL."""
    figures = [*_one_server("on SQLite", server, extent)]
    server.stop()
    for count in NODES:
        with _nodes(server.folder, count) as (nodes, database):
            if count == 1:
                figures += _one_server("on PostgreSQL", nodes[0], extent, database)
                figures += _ticks(nodes[0], database, extent)
            figures.append(_crowd(nodes, extent))
            if count == 2:
                figures += _watch(nodes, extent)
                figures += follow(nodes, extent)
                figures.append(_take_over(nodes, extent))
            if count == 3:
                figures.append(storm(nodes, nodes[0].kill, extent.crowd))
                figures.append(leave(nodes[1], extent.crowd))
    if extent.share == 1:
        with _nodes(server.folder, 3) as (nodes, _):
            figures.append(storm(nodes, nodes[0].kill, MANY_SESSIONS))
    return [*figures, *_groups(extent)]


def _groups(extent: Extent) -> Sequence[Figure]:
    """Measure groups of events, in this process."""
    with _database() as database:
        return groups(database, extent)


@contextmanager
def _database() -> Generator[PostgresServer]:
    """Run a PostgreSQL that syncs as one in use does."""
    with own_server() as database:
        database.start(fsync="on", full_page_writes="on", shared_buffers="128MB")
        make_schema(database.url(), None)
        yield database


@contextmanager
def _nodes(folder: Path, count: int) -> Generator[tuple[list[_Node], PostgresServer]]:
    """Run nodes on a PostgreSQL of their own."""
    with _database() as database, ExitStack() as stack:
        os.environ["ARCP_STORE"] = database.url()
        stack.callback(os.environ.pop, "ARCP_STORE")
        nodes = [_Node(folder, f"n{number}") for number in range(count)]
        for node in nodes:
            stack.callback(node.stop)
            node.start()
        yield nodes, database


def _one_server(
    where: str, server: Server, extent: Extent, database: PostgresServer | None = None
) -> Sequence[Figure]:
    """Measure one client's stream, and jobs that end at once."""
    events, trips = max(extent.of(5 * EVENTS), LEAST_EVENTS), extent.of(TRIPS)
    row = f"1 node {where}: stream"
    with Client(server.url) as client:
        stream(client, events // 10)  # warms up
        meter = None if database is None else _Meter(database)
        with stopwatch(server) as watch:
            stream(client, events)
        costs = [] if meter is None else meter.figures(row, events)
        seconds = run_jobs([client], trips)
    return [
        watch.rate(row, "events/s", events),
        watch.cost(f"{row}: server's time for 1,000", events, per=1000),
        *costs,
        *percentiles(f"1 node {where}: submit to result", seconds),
    ]


def _ticks(server: Server, database: PostgresServer, extent: Extent) -> Sequence[Figure]:
    """Measure what events cost that come one by one, each in a transaction of its own."""
    ticks = max(extent.of(TICKS), LEAST_TICKS)
    row = "1 node on PostgreSQL: events one by one"
    with Client(server.url) as client:
        meter = _Meter(database)
        with stopwatch(server) as watch:
            begin = time.monotonic()
            client.submit("ticker", {"n": ticks, "interval": TICK_SECONDS, "begin": begin})
            client.expect("job.accepted")
            for _ in range(ticks):
                client.receive()
            client.expect("job.result")
        costs = meter.figures(row, ticks)
    return [watch.cost(f"{row}: server's time for 1,000", ticks, per=1000), *costs]


def _crowd(nodes: Sequence[Server], extent: Extent) -> Figure:
    """Measure many streams, at all nodes by turns."""
    events = extent.of(EVENTS)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(Client(nodes[n % len(nodes)].url, token=TOKENS[n % len(TOKENS)]))
            for n in range(CROWD)
        ]
        with stopwatch() as watch:
            for client in clients:
                client.submit("chatty", {"n": events, "size": MESSAGE_CHARACTERS})
            waiting = len(clients)
            for _, frames in arrivals(clients):
                waiting -= sum(b'"job.result"' in frame for frame in frames)
                if not waiting:
                    break
    nodes_in_words = f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"
    return watch.rate(
        f"{nodes_in_words} on PostgreSQL: {CROWD} streams", "events/s", CROWD * events
    )


def _watch(nodes: Sequence[Server], extent: Extent) -> Sequence[Figure]:
    """Measure how late events are at the job's node, and at another one."""
    ticks = extent.of(TICKS)
    here, there = nodes
    with (
        Client(here.url, features=("subscribe",)) as owner,
        Client(here.url, features=("subscribe",)) as near,
        Client(there.url, features=("subscribe",)) as far,
    ):
        begin = time.monotonic() + LEAD_SECONDS
        owner.submit("ticker", {"n": ticks, "interval": TICK_SECONDS, "begin": begin})
        job_id = owner.expect("job.accepted")["payload"]["job_id"]
        for watcher in (near, far):
            watcher.send("job.subscribe", {"job_id": job_id, "history": True})
            watcher.expect("job.subscribed")
        waits: dict[Client, list[float]] = {near: [], far: []}
        for client, frames in arrivals([near, far]):
            now = time.monotonic()
            for frame in frames:
                at = frame.find(SENT)
                if at >= 0:
                    waits[client].append(now - float(frame[at + len(SENT) :].split()[0]))
            if all(len(found) == ticks for found in waits.values()):
                break
    return [
        *percentiles("watch at the job's node, after emission", waits[near]),
        *percentiles("watch at another node, after emission", waits[far]),
    ]


def _take_over(nodes: Sequence[_Node], extent: Extent) -> Figure:
    """Measure the time from the kill of a node to the last end of its jobs, at another node."""
    jobs = extent.of(JOBS)
    dying, other = nodes
    names: list[str] = []
    with ExitStack() as stack:
        owners = [stack.enter_context(Client(dying.url, token=token)) for token in TOKENS]
        for number in range(jobs):
            owner = owners[number % len(owners)]
            owner.submit("sleeper", None)
            names.append(owner.expect("job.accepted")["payload"]["job_id"])
        resumes = [owner.resume_from(owner.seq) for owner in owners]
        dying.kill()
        began = time.perf_counter()
        again = [
            stack.enter_context(Client(other.url, token=token, resume=resume))
            for token, resume in zip(TOKENS, resumes, strict=True)
        ]
        ended: set[str] = set()
        for _, frames in arrivals(again):
            ended |= {json.loads(frame)["job_id"] for frame in frames if b'"job.error"' in frame}
            if len(ended) == jobs:
                break
    row = f"a node with {jobs:,} jobs is killed, and declared dead after 2 s: all have ended"
    return Figure(row, "s", time.perf_counter() - began, less_is_better=True)
