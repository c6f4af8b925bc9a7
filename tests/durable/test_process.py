"""A real server is killed at a write of a durable job, and the client library sees it through."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import attrs
import pytest
import trio

from arcp_trio import JobHandle, connect
from tests.durable.comparing import FROM_INSIDE, in_short, outside
from tests.durable.process import TOKEN, Server, server_in
from tests.durable.script import ANSWER, BUDGET, EFFECTS, LEASE, RESULT

pytestmark = pytest.mark.real_tcp

SECONDS = 100.0


@attrs.frozen
class Seen:
    """What a client has seen of a job, and what the job has done to the world."""

    told: list[str]
    result: object
    effects: Counter[str]
    deaths: int


async def run(folder: Path, die_at: int = 0, *, behind: bool = False) -> Seen:
    """Have the script's job done by a server that dies at this commit, and starts again."""
    with trio.fail_after(SECONDS):
        async with server_in(folder) as server:
            deaths: list[int] = []
            await server.start(die_at=die_at, behind=behind)
            async with trio.open_nursery() as nursery:
                if die_at:
                    nursery.start_soon(revive, server, deaths)
                async with connect(server.url, token=TOKEN) as client:
                    job = await client.submit(
                        "script", lease={**LEASE, **BUDGET}, idempotency_key="k"
                    )
                    nursery.start_soon(answer_all, job)
                    told = [in_short(event.kind, event.body) async for event in job.events()]
                    result = await job.result()
                nursery.cancel_scope.cancel()
            return Seen(told, result, Counter(server.effects), len(deaths))


async def answer_all(job: JobHandle) -> None:
    """Answer what a job asks, through all deaths."""
    async for question in job.questions():
        await question.answer(ANSWER)


async def revive(server: Server, deaths: list[int]) -> None:
    """Start the server again once it has died, and note the death."""
    assert await server.dead()
    deaths.append(server.port)
    await server.start()


def compare(seen: Seen, plain: Seen) -> None:
    """Compare a life with deaths with one without any."""
    deaths = seen.deaths
    counts = Counter(seen.told)
    assert seen.result == plain.result == RESULT
    assert outside(seen.told, ordered=True) == outside(plain.told, ordered=True)
    assert Counter(outside(seen.told)) == Counter(outside(plain.told))
    assert all(1 <= counts[text] <= 1 + deaths for text in FROM_INSIDE)
    assert set(seen.effects) == EFFECTS
    assert max(seen.effects.values()) <= 1 + deaths
    assert sum(seen.effects.values()) <= len(EFFECTS) + 2 * deaths, "finished steps ran again"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A life without a death."""
    return trio.run(run, tmp_path_factory.mktemp("plain"))


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("die_at", [4, 7, 10, 13, 16, 19])
async def test_a_kill_at_a_write(plain: Seen, die_at: int, tmp_path: Path, *, behind: bool) -> None:
    """Stream, effects and result are those of a life without a kill."""
    seen = await run(tmp_path, die_at, behind=behind)
    assert seen.deaths == 1
    compare(seen, plain)


@pytest.mark.soak
async def test_a_kill_at_every_write(plain: Seen, tmp_path: Path) -> None:
    """The same at every write, before it and after it."""
    die_at, deaths = 2, 1
    while deaths:
        die_at += 1
        for behind in (False, True):
            folder = tmp_path / f"{die_at}{behind}"
            folder.mkdir(mode=0o700)
            seen = await run(folder, die_at, behind=behind)
            compare(seen, plain)
            deaths = seen.deaths
    assert die_at > 20
