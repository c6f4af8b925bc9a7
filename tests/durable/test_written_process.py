"""Real servers are killed while durable agents stream: clients get each chunk once, and all."""

from __future__ import annotations

import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
import trio

from arcp_trio import JobHandle, ObservedJob, connect
from arcp_trio.store.postgres.administering import make_schema
from tests.durable.process import TOKEN, Server, server_in
from tests.durable.writing_agents import TEXT

pytestmark = pytest.mark.real_tcp

AGENTS: Final = ("--agents", "tests.durable.writing_agents")
DEATHS: Final = 3
SECONDS: Final = 100.0


async def chunks_of(job: JobHandle | ObservedJob) -> list[str]:
    """Return the data of a job's chunks, which are those of one result, each of them once."""
    found = [each.body async for each in job.events() if each.kind == "result_chunk"]
    assert [chunk["chunk_seq"] for chunk in found] == list(range(len(found)))
    assert len({chunk["result_id"] for chunk in found}) == 1
    return [str(chunk["data"]) for chunk in found]


async def read_under(
    server: Server, agent: str, disturb: Callable[[Server], Awaitable[None]]
) -> None:
    """Have an agent stream to a client while the server dies, and to another one after that."""
    async with trio.open_nursery() as nursery:
        async with connect(server.url, token=TOKEN) as client:
            nursery.start_soon(disturb, server)
            job = await client.submit(agent, idempotency_key="k")
            seen = await chunks_of(job)
            assert ("".join(seen), await job.result()) == (TEXT, TEXT)
        nursery.cancel_scope.cancel()
    await server.signalled(signal.SIGKILL)
    await server.start()
    async with connect(server.url, token=TOKEN) as other:
        again = await other.subscribe(job.id, history=True)
        assert await chunks_of(again) == seen
        assert await again.result() == TEXT


@pytest.mark.parametrize("agent", ["trio", "asyncio", "thread", "worker"])
async def test_kills_at_random_commits(agent: str, tmp_path: Path) -> None:
    """Wherever the agent runs, its text is whole, and no chunk comes twice."""
    rng, deaths = random.Random(agent), list[int]()

    async def disturb(server: Server) -> None:
        while await server.dead():
            deaths.append(server.port)
            await server.start(die_at=rng.randint(4, 30) if len(deaths) < DEATHS else 0)

    with trio.fail_after(SECONDS):
        async with server_in(tmp_path, *AGENTS) as server:
            await server.start(die_at=rng.randint(10, 30))
            await read_under(server, agent, disturb)
    assert deaths


@pytest.mark.postgres
async def test_kills_over_a_database(database: str, tmp_path: Path) -> None:
    """The same over PostgreSQL."""
    rng = random.Random(0)

    async def disturb(server: Server) -> None:
        for _ in range(DEATHS):
            await trio.sleep(rng.uniform(0.2, 0.6))
            await server.signalled(signal.SIGKILL)
            await server.start()

    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(SECONDS):
        async with server_in(tmp_path, *AGENTS, "--store", database, "--node", "one") as server:
            await server.start()
            await read_under(server, "trio", disturb)
