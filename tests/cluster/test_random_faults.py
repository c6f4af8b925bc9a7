"""Faults of all kinds at random: nothing is lost, doubled or reordered."""

from __future__ import annotations

import logging
import math
import os
import random
import shutil
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.cluster.chaos import Chaos, Work
from tests.cluster.stage import staged
from tests.postgres import fresh_database

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

log = logging.getLogger(__name__)

ROUND: Final = 100
"""Faults that are done to one database, which is looked through after them."""
ROUND_SECONDS: Final = 1_800.0
"""Within which a round ends, also on a machine that has little time for it."""
SIDE_BY_SIDE: Final = 2
"""Rounds at a time, each over a database of its own: most of a fault is waiting."""
PAUSE: Final = 0.03
"""Seconds between two lines of a job: faults, and not jobs, are to keep the processors busy."""


async def go_through(database: str, folder: Path, seed: int, faults: int, seconds: float) -> None:
    """Have clients work while faults are done, and check everything."""
    async with staged(database, folder, seconds=seconds) as stage:
        clients = [
            await stage.client(principal=who, patience=seconds / 2)
            for who in ("alice", "bob")
            for _ in range(3)
        ]
        chaos, work = Chaos(stage, seed), Work(clients, seed, pause=PAUSE)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work.run)
                await chaos.run(faults)
                work.over = True
        except BaseException as error:
            error.add_note(f"seed {seed}, after {work.jobs} jobs and {chaos.done}")
            raise
        assert work.jobs >= len(clients)
        assert not any(client.lost_sessions for client in clients)


async def test_some_faults(database: str, tmp_path: Path) -> None:
    """Six clients follow jobs to their ends while nodes, lines and connections fail."""
    await go_through(database, tmp_path, 1, faults=4, seconds=110)


@pytest.mark.soak
@pytest.mark.timeout(0)
async def test_ten_thousand_faults(tmp_path: Path) -> None:
    """The same for hours, in rounds; `CLUSTER_SEED` and `CLUSTER_FAULTS` choose another run."""
    first = int(os.environ.get("CLUSTER_SEED") or random.randrange(1_000_000))
    rounds = math.ceil(int(os.environ.get("CLUSTER_FAULTS") or 10_000) / ROUND)
    seeds = iter(range(first, first + rounds))

    async def go_through_rounds() -> None:
        for seed in seeds:
            began, folder = trio.current_time(), tmp_path / str(seed)
            folder.mkdir()
            with fresh_database() as database:
                await go_through(database, folder, seed, ROUND, seconds=ROUND_SECONDS)
            log.info("seed %d: %d faults in %.0f s", seed, ROUND, trio.current_time() - began)
            shutil.rmtree(folder)

    async with trio.open_nursery() as nursery:
        for _ in range(SIDE_BY_SIDE):
            nursery.start_soon(go_through_rounds)
