"""Long runs: hundreds of kills, and a start with ten thousand sessions."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from time import perf_counter
from typing import Final

import pytest
import trio

from tests.crash.client import Client, World
from tests.crash.process import CROWD, Server, server_over
from tests.crash.story import go_through

pytestmark = [pytest.mark.real_tcp, pytest.mark.soak]

FOLDERS: Final = 6
KILLS_OF_EACH: Final = 50

SESSIONS_OF_EACH: Final = 500
AT_A_TIME: Final = 25
STARTS: Final = 3
SAMPLE: Final = 200


async def test_hundreds_of_kills(tmp_path: Path) -> None:
    """Hundreds of kills over growing files lose nothing; `CRASH_SEED` sets the first seed."""
    first = int(os.environ.get("CRASH_SEED") or random.randrange(1_000_000))
    with trio.fail_after(3_000):
        for seed in range(first, first + FOLDERS):
            folder = tmp_path / str(seed)
            folder.mkdir()
            await go_through(folder, seed, KILLS_OF_EACH)


async def test_a_start_with_ten_thousand_sessions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a kill ten thousand sessions can be resumed, and their jobs have ended."""
    with trio.fail_after(1_500):
        async with server_over(tmp_path) as server:
            empty = await seconds_to_start(server)
            parked = await fill(server)
            full = await seconds_to_start(server)
            await server.start()
            resume = await seconds_to_resume(random.Random(1).sample(parked, SAMPLE))
    with capsys.disabled():
        sys.stdout.write(
            f"\nstart: {empty:.2f} s with nothing, {full:.2f} s with {len(parked)} sessions;"
            f" then a resume takes {1_000 * resume:.1f} ms\n"
        )


async def seconds_to_start(server: Server) -> float:
    """Return the shortest time of a few starts, from the process to its port."""
    took: list[float] = []
    for _ in range(STARTS):
        begin = perf_counter()
        await server.start()
        took.append(perf_counter() - begin)
        await server.kill()
    return min(took)


async def fill(server: Server) -> list[Client]:
    """Make sessions that are parked when the server is killed."""
    world = World(server)
    clients = [Client(world, f"{who}-{n}", who) for who in CROWD for n in range(SESSIONS_OF_EACH)]
    await server.start()
    async with trio.open_nursery() as nursery:
        for start in range(AT_A_TIME):
            nursery.start_soon(visit, clients[start::AT_A_TIME])
    await server.kill()
    for client in clients:
        client.server_died()
    return clients


async def visit(clients: list[Client]) -> None:
    """Open a session each and submit two jobs, a few of which never end."""
    for number, client in enumerate(clients):
        async with client.attached():
            await client.answered(await client.submit(None, 10, 5, 0.001))
            total = 1_000_000 if number % 40 == 0 else 3
            await client.answered(await client.submit(None, total, 5, 0.05))


async def seconds_to_resume(clients: list[Client]) -> float:
    """Return the average time of a resume up to the last replayed frame."""
    begin = perf_counter()
    for client in clients:
        highest = client.highest
        async with client.attached():
            await client.caught_up(highest, highest)
    return (perf_counter() - begin) / len(clients)
