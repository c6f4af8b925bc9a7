"""What durable jobs cost: a step, many steps, a restart, and what one costs that only streams."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Final

import trio

from arcp_trio import Agents, JobContext, Json, Limits, Runtime, SqliteStore, StaticTokens
from arcp_trio.testing import open_pair
from bench.figures import Extent, Figure
from bench.peers import TOKENS, Server

STEPS: Final = 10_000
JOBS: Final = 1_000
STEPS_OF_EACH: Final = 100
EVENTS: Final = 20_000
TURNS: Final = 5

agents: Final = Agents()


async def work() -> Json:
    """Return a small result at once."""
    return {"done": True}


async def stepper(job: JobContext) -> Json:
    """Do as many steps as the input says, and return how long each took."""
    seconds: list[float] = []
    for _ in range(job.input):
        began = time.perf_counter()
        await job.step("step", work)
        seconds.append(time.perf_counter() - began)
    return seconds


async def streamer(job: JobContext) -> Json:
    """Emit as many events as the input says, and return how long that took."""
    began = time.perf_counter()
    for number in range(job.input):
        await job.log(f"message {number}")
    return time.perf_counter() - began


class Waiting:
    """How many jobs have done their steps and wait, in any of their runs."""

    jobs = 0


async def waiter(job: JobContext) -> None:
    """Do as many steps as the input says, and wait for a day."""
    for _ in range(job.input):
        await job.step("step", work)
    Waiting.jobs += 1
    await job.sleep(80_000)


agents.agent("stepper", durable=True)(stepper)
agents.agent("waiter", durable=True)(waiter)
agents.agent("streamer")(streamer)
agents.agent("durable-streamer", durable=True)(streamer)


def durable(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure in this process, over a file on the disk of the server's."""
    with TemporaryDirectory(dir=server.folder) as folder:
        return trio.run(_durable, Path(folder), extent)


async def _durable(folder: Path, extent: Extent) -> Sequence[Figure]:
    figures = _spread("insert into SQLite", _inserts(folder / "plain.db", extent.of(1_000)))
    async with (
        _runtime(folder / "a.db") as runtime,
        open_pair(runtime, token=TOKENS[0]) as client,
    ):
        seconds = await (await client.submit("stepper", extent.of(1_000))).result()
        figures += _spread("step of a durable job", seconds)
        steps = extent.of(STEPS)
        seconds = await (await client.submit("stepper", steps)).result()
        figures.append(_seconds(f"{steps:,} steps in one job", sum(seconds)))
        events = extent.of(EVENTS)
        best = {"streamer": 0.0, "durable-streamer": 0.0}
        for _ in range(TURNS):  # by turns, so that a machine that slows down affects both
            for name, rate in best.items():
                job = await client.submit(name, events)
                best[name] = max(rate, events / await job.result())
        figures += [Figure(f"emit, {name}", "events/s", rate) for name, rate in best.items()]
    return [*figures, *await _restart(folder / "b.db", extent.of(JOBS))]


async def _restart(path: Path, jobs: int) -> Sequence[Figure]:
    async with _runtime(path) as runtime, open_pair(runtime, token=TOKENS[0]) as client:
        for _ in range(jobs):
            await client.submit("waiter", STEPS_OF_EACH)
        await _all_waiting(jobs)
    row = f"restart with {jobs:,} jobs of {STEPS_OF_EACH} steps, until"
    began = time.perf_counter()
    async with _runtime(path) as runtime:
        while runtime.ready() is not None:  # noqa: ASYNC110 - as a probe does
            await trio.sleep(0.001)
        let_in = time.perf_counter() - began
        await _all_waiting(jobs)
        again = time.perf_counter() - began
    return [_seconds(f"{row} clients are let in", let_in), _seconds(f"{row} all go on", again)]


async def _all_waiting(jobs: int) -> None:
    while Waiting.jobs < jobs:  # noqa: ASYNC110 - it is what is measured
        await trio.sleep(0.01)
    Waiting.jobs = 0


def _inserts(path: Path, times: int) -> list[float]:
    """Return how long each insert of a row took, each with a sync."""
    seconds: list[float] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL").fetchone()
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE step (id INTEGER PRIMARY KEY, value BLOB)")
        for _ in range(times):
            began = time.perf_counter()
            db.execute("INSERT INTO step (value) VALUES (?)", (b'{"done":true}',))
            seconds.append(time.perf_counter() - began)
    return seconds


def _spread(row: str, seconds: Sequence[float]) -> list[Figure]:
    cuts = quantiles(seconds, n=100) if len(seconds) > 1 else [seconds[0]] * 99
    return [
        Figure(f"{row}: {name}", "ms", 1000 * cuts[at], less_is_better=True)
        for name, at in (("p50", 49), ("p99", 98))
    ]


def _seconds(row: str, seconds: float) -> Figure:
    return Figure(row, "s", seconds, less_is_better=True)


def _runtime(path: Path) -> Runtime:
    runtime = Runtime(
        auth=StaticTokens({TOKENS[0]: "bench"}),
        store=SqliteStore(path),
        limits=Limits(jobs=JOBS, jobs_per_principal=JOBS, jobs_begun_per_second=1_000_000),
    )
    runtime.add(agents)
    return runtime
