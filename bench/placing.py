"""What it costs to run an agent elsewhere than in the loop: from a submit to its result."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

import trio

from arcp_trio import Runtime, StaticTokens, Workers
from arcp_trio.testing import open_pair
from bench.figures import Extent, Figure
from bench.peers import TOKENS, Server
from bench.placed_agents import agents


def placing(_server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure the median for each place, one job at a time, in this process over memory."""
    return trio.run(_placing, extent.of(500))


async def _placing(times: int) -> Sequence[Figure]:
    runtime = Runtime(
        auth=StaticTokens({TOKENS[0]: "bench"}),
        workers=Workers(count=2, jobs_per_worker=1_000_000),
    )
    runtime.add(agents)
    figures: list[Figure] = []
    async with runtime, open_pair(runtime, token=TOKENS[0]) as client:
        for agent in agents.inventory():
            seconds: list[float] = []
            for _ in range(times + 10):
                began = time.perf_counter()
                await (await client.submit(agent.name)).result()
                seconds.append(time.perf_counter() - began)
            row = f"submit to result, {agent.name.replace('-', ', ')}: p50"
            figures.append(Figure(row, "ms", 1000 * median(seconds[10:]), less_is_better=True))
    return figures
