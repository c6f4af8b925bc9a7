"""What it costs to book what principals hold: the time of events and jobs, with it and without."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Final

import trio
import trio.testing

from arcp_trio import JobContext, Runtime, StaticTokens
from arcp_trio.runtime.ledger import Share
from arcp_trio.testing import open_pair
from bench.figures import Extent, Figure
from bench.peers import TOKENS, Server

EVENTS: Final = 2_000
JOBS: Final = 50
"""In one piece of work; pieces with the ledger and without it take turns."""
MESSAGE: Final = "x" * 100


def booking(_server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure the processor time of work with the ledger and without, in this process."""
    return trio.run(_booking, extent.of(40))


async def _booking(pieces: int) -> Sequence[Figure]:
    runtime = Runtime(auth=StaticTokens({TOKENS[0]: "bench"}))

    @runtime.agent("talker")
    async def talker(job: JobContext) -> None:
        for _ in range(job.input):
            await job.log(MESSAGE)

    async with runtime, open_pair(runtime, token=TOKENS[0]) as client:

        async def stream() -> None:
            job = await client.submit("talker", EVENTS)
            async for _ in job.events():
                pass

        async def short_jobs() -> None:
            for _ in range(JOBS):
                await (await client.submit("talker", 0)).result()

        return [
            *await _compare("event", stream, EVENTS, pieces),
            *await _compare("short job", short_jobs, JOBS, pieces),
        ]


async def _compare(
    what: str, work: Callable[[], Awaitable[None]], count: int, pieces: int
) -> Sequence[Figure]:
    booked, unbooked = list[float](), list[float]()
    for _ in range(pieces):
        booked.append(await _seconds(work))
        with _no_ledger():
            unbooked.append(await _seconds(work))
    return [
        Figure(f"{what}, {how}", "µs", 1e6 * median(seconds) / count, less_is_better=True)
        for how, seconds in (("booked in the ledger", booked), ("not booked", unbooked))
    ]


async def _seconds(work: Callable[[], Awaitable[None]]) -> float:
    began = time.thread_time()
    await work()
    await trio.testing.wait_all_tasks_blocked()  # so that what was taken is given back
    return time.thread_time() - began


@contextmanager
def _no_ledger() -> Generator[None]:
    """Have nothing booked for the block, which begins and ends while nothing is held."""
    take, give = Share.take, Share.give
    try:
        Share.take = _nothing
        Share.give = _nothing
        yield
    finally:
        Share.take = take
        Share.give = give


def _nothing(_share: Share, _amount: int) -> None:
    pass
