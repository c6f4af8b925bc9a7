"""Keys that come at several nodes while nodes are killed: one key, one job."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Final

import psycopg
import pytest
import trio

from tests.cluster.client import Client
from tests.cluster.nodes import NODE_SECONDS
from tests.cluster.stage import Stage, staged

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SEED: Final = 8
PAUSE_SECONDS: Final = 0.02
"""The longest pause of a client between two submits."""


async def submit_all(client: Client, keys: int, seed: int, jobs: dict[str, set[str]]) -> None:
    """Submit a job under each key, in an order of the client's own, and see all of them end."""
    chance = random.Random(seed)
    for number in chance.sample(range(keys), keys):
        jobs[f"key {number}"].add(await client.submit("count", [0, 0], f"key {number}"))
        await trio.sleep(chance.uniform(0, PAUSE_SECONDS))
    for job_id in client.keyed.values():
        await client.end(job_id)


async def kill_nodes(stage: Stage, until: trio.Event) -> int:
    """Kill one node after the other, and start each again; return how many were killed."""
    chance, kills = random.Random(SEED), 0
    while not until.is_set():
        node = chance.choice(stage.cluster.nodes)
        await node.kill()
        kills += 1
        await trio.sleep(chance.uniform(0, NODE_SECONDS))
        await node.start()
    return kills


async def go_through(database: str, folder: Path, keys: int, seconds: float) -> int:
    """Have three clients submit under the same keys while nodes are killed; return the kills."""
    jobs, submitted = defaultdict[str, set[str]](set), trio.Event()

    async def work(clients: list[Client]) -> None:
        async with trio.open_nursery() as nursery:
            for seed, client in enumerate(clients):
                nursery.start_soon(submit_all, client, keys, seed, jobs)
        submitted.set()

    async with staged(database, folder, seconds=seconds) as stage:
        clients = [await stage.client(node) for node in stage.cluster.nodes]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, clients)
            kills = await kill_nodes(stage, submitted)
    assert [len(ids) for ids in jobs.values()] == [1] * keys
    with psycopg.connect(database) as db:
        stored = {job_id for (job_id,) in db.execute("SELECT job_id FROM arcp.job").fetchall()}
    assert stored == {job_id for ids in jobs.values() for job_id in ids}
    return kills


async def test_some_keys(database: str, tmp_path: Path) -> None:
    """Clients submit under the same keys at three nodes, of which some are killed meanwhile."""
    assert await go_through(database, tmp_path, 60, seconds=110) >= 1


@pytest.mark.soak
@pytest.mark.timeout(0)
async def test_a_thousand_keys(database: str, tmp_path: Path) -> None:
    """The same with more of both."""
    assert await go_through(database, tmp_path, 1_000, seconds=1_200) >= 10
