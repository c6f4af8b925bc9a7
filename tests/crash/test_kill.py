"""The server is killed at any moment, again and again, and forgets nothing that it has sent."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
import trio

from arcp_trio.transport.base import TransportClosed
from tests.crash.client import Client, World
from tests.crash.process import Server, server_over
from tests.crash.story import go_through

pytestmark = pytest.mark.real_tcp

CYCLES: Final = 5
ACCEPTANCES: Final = 20
HANDSHAKES: Final = 9
FAILED_STARTS: Final = 4
JOBS: Final = 20

TEST_SECONDS: Final = 110.0


@pytest.mark.spec("6.3-3", "1.0/6.3-2", "1.0/6.3-3")
@pytest.mark.parametrize("seed", range(4))
async def test_what_was_seen_survives_any_kill(tmp_path: Path, seed: int) -> None:
    """After kills under load eight sessions find what they saw, and one end per job."""
    with trio.fail_after(TEST_SECONDS):
        await go_through(tmp_path, seed, CYCLES)


@asynccontextmanager
async def one_client(folder: Path) -> AsyncGenerator[tuple[Server, Client]]:
    """Provide a server that is not started yet, and its only client."""
    with trio.fail_after(TEST_SECONDS):
        async with server_over(folder) as server:
            yield server, Client(World(server), "alice", "alice")


async def comes_back(client: Client) -> None:
    """Start the server, and check that everything seen is there and every job has ended."""
    highest = client.highest
    async with client.attached(0):
        await client.caught_up(0, highest)


async def test_a_job_is_found_that_was_accepted_in_the_last_moment(tmp_path: Path) -> None:
    """A job is there, and ended, if the server is killed right after its acceptance."""
    async with one_client(tmp_path) as (server, client):
        for number in range(ACCEPTANCES):
            await server.start()
            highest = client.highest
            with suppress(TransportClosed):
                async with client.attached():
                    await client.caught_up(highest, highest)
                    key = f"key {number}" if number % 2 else None
                    await client.answered(await client.submit(key, 1_000, 1, 0.001))
                    await server.kill()
            client.server_died()
        await server.start()
        await comes_back(client)
        assert len(client.ended) == ACCEPTANCES


async def test_a_resume_that_was_cut_off_costs_nothing(tmp_path: Path) -> None:
    """A server killed during a resume leaves the client's token good."""
    chance = random.Random(5)
    async with one_client(tmp_path) as (server, client):
        await server.start()
        async with client.attached():
            await client.ended_all({await client.answered(await client.submit(None, 99, 9, 0.0))})
        for number in range(HANDSHAKES):
            if number % 3 == 0:
                # The welcome with another token is on its way, but the client does not read it.
                async with client.asking_to_resume():
                    await trio.sleep(0.05)
                    await server.kill()
            else:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(resumes_if_it_can, client)
                    await trio.sleep(chance.uniform(0, 0.015))
                    await server.kill()
            await server.start()
        await comes_back(client)


async def resumes_if_it_can(client: Client) -> None:
    """Resume, and stay until the server is gone."""
    with suppress(TransportClosed, OSError):
        async with client.attached(0):
            await trio.sleep_forever()


async def test_killed_again_before_anyone_is_back(tmp_path: Path) -> None:
    """A server killed several times while it starts gives each lost job one end."""
    chance = random.Random(7)
    async with one_client(tmp_path) as (server, client):
        await server.start()
        with suppress(TransportClosed):
            async with client.attached():
                for request in [await client.submit(None, 1_000, 1, 0.001) for _ in range(JOBS)]:
                    await client.answered(request)
                await server.kill()
        client.server_died()
        await server.start()  # it ends the jobs, and no client is connected
        await server.kill()
        for _ in range(FAILED_STARTS):
            await server.launch()
            await trio.sleep(chance.uniform(0.1, 0.6))
            await server.kill()
        await server.start()
        await comes_back(client)
        assert len(client.ended) == JOBS
