"""Minutes of random durable programs on a real server, under random SIGKILL and SIGTERM."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
import trio

from arcp_trio import Client, InternalError, JobHandle, Json, connect
from tests.durable.comparing import in_short
from tests.durable.process import TOKEN, Server, server_in
from tests.durable.programs import LEASE, check, numbered, random_shape

pytestmark = [pytest.mark.real_tcp, pytest.mark.soak]

SECONDS: Final = float(os.environ.get("SOAK_SECONDS", "1800"))
CLIENTS: Final = 4
JOB_SECONDS: Final = 300.0
"""How long one job may take, all kills included."""


async def test_random_programs_under_random_signals(tmp_path: Path) -> None:
    """Nothing is lost, and nothing that was finished is done or told twice."""
    seed, done = random.randrange(1_000_000), list[str]()
    try:
        async with server_in(tmp_path, "--agents", "tests.durable.program_agents") as server:
            await server.start()
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(disturb, server, random.Random(seed))
                    async with trio.open_nursery() as clients:
                        for number in range(CLIENTS):
                            clients.start_soon(one_client, server, seed + number, done)
                    nursery.cancel_scope.cancel()
                assert "Traceback" not in server.log
            except BaseException as error:
                error.add_note(f"after {len(done)} jobs; the end of the log: {server.log[-9_000:]}")
                raise
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    assert len(done) >= CLIENTS


async def disturb(server: Server, rng: random.Random) -> None:
    """Kill or end the server at random moments, and start it again."""
    while True:
        await trio.sleep(rng.uniform(1, 6))
        with trio.CancelScope(shield=True):
            await server.signalled(rng.choice([signal.SIGKILL, signal.SIGTERM]))
            await server.start()


async def one_client(server: Server, seed: int, done: list[str]) -> None:
    """Submit one random program after the other from one session."""
    async with connect(server.url, token=TOKEN) as client:
        rng, end = random.Random(seed), trio.current_time() + SECONDS
        while trio.current_time() < end:
            key = f"{seed}-{len(done)}-{rng.random()}"
            with trio.fail_after(JOB_SECONDS):
                await one_job(client, server, rng, key)
            done.append(key)


async def submitted(client: Client, given: Json, key: str) -> JobHandle:
    """Submit a program; again if the runtime refused it because it was being ended."""
    while True:
        try:
            return await client.submit("program", given, lease=LEASE, idempotency_key=key)
        except InternalError as refusal:
            if refusal.message != "the runtime is shutting down":
                raise
        await trio.sleep(0.1)


async def one_job(client: Client, server: Server, rng: random.Random, key: str) -> None:
    """Have a random program done, and compare what comes of it."""
    program = numbered(random_shape(rng), itertools.count())
    job = await submitted(client, [key, program], key)
    told = [in_short(event.kind, event.body) async for event in job.events()]
    result = await job.result()
    lines = [line.split() for line in server.effects]
    done = Counter(int(number) for of_job, number in lines if of_job == key)
    deaths = sum(text.startswith("resumed") for text in told)
    check(program, told, result, done, deaths + 1)
