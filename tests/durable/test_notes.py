"""Notes: what a job keeps for later jobs of its principal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    Agents,
    BlockingContext,
    InternalError,
    JobContext,
    Json,
    Limits,
    MemoryStore,
    connect,
)
from arcp_trio.store.writes import KeepMemo, Write
from arcp_trio.testing import Peer
from tests.durable.noting_agents import agents as noting_agents
from tests.durable.process import TOKEN, server_in
from tests.durable.stage import Life, result
from tests.stage import BOB, Stage


async def run(peer: Peer, agent: str, input_: Json = None) -> tuple[str, object]:
    """Run a job; return its id and its result."""
    job_id = (await peer.submit(agent, input_))["job_id"]
    return job_id, result(await peer.until_terminal(job_id))


async def run_one(agents: Agents, limits: Limits | None = None) -> object:
    """Return the result of a job of the only agent."""
    async with Stage.open(MemoryStore(), limits=limits) as stage:
        stage.runtime.add(agents)
        peer = await stage.connect()
        await peer.hello()
        return (await run(peer, "agent"))[1]


async def test_a_later_job_reads_the_last_note(autojump_clock: MockClock) -> None:
    """A note is there for later jobs, and for its own; the last one counts."""
    async with Stage.open(MemoryStore()) as stage:
        stage.runtime.add(noting_agents)
        peer = await stage.connect()
        await peer.hello()
        job_id, kept = await run(peer, "keeper", ["a", {"n": [1, 2.5, None]}])
        assert kept == {"n": [1, 2.5, None]}
        assert (await run(peer, "reader", job_id))[1] == {"n": [1, 2.5, None]}
        without, kept = await run(peer, "keeper", [])
        assert kept is None
        assert (await run(peer, "reader", without))[1] is None


@pytest.mark.parametrize("foreign", ["job_01M7", "../job", "", "\0", "é" * 9_000])
async def test_no_note_without_a_job(autojump_clock: MockClock, foreign: str) -> None:
    """An id that no job has gives None."""
    async with Stage.open(MemoryStore()) as stage:
        stage.runtime.add(noting_agents)
        peer = await stage.connect()
        await peer.hello()
        assert (await run(peer, "reader", foreign))[1] is None


async def test_a_note_is_its_principals(autojump_clock: MockClock) -> None:
    """A job of another principal gets None, as if there were no such job."""
    async with Stage.open(MemoryStore()) as stage:
        stage.runtime.add(noting_agents)
        alice, bob = await stage.connect(), await stage.connect()
        await alice.hello()
        await bob.hello(token=BOB)
        job_id, _ = await run(alice, "keeper", ["mine"])
        assert (await run(bob, "reader", job_id))[1] is None
        assert (await run(alice, "reader", job_id))[1] == "mine"


async def test_a_note_goes_with_its_job(autojump_clock: MockClock) -> None:
    """Once its job is past its retention, there is no note."""
    limits = Limits(finished_job_seconds=60)
    async with Stage.open(MemoryStore(), limits=limits) as stage:
        stage.runtime.add(noting_agents)
        peer = await stage.connect()
        await peer.hello()
        job_id, _ = await run(peer, "keeper", ["mine"])
        await trio.sleep(200)
        later = await stage.connect()
        await later.hello()
        assert (await run(later, "reader", job_id))[1] is None


class HeldStore(MemoryStore):
    """A store that takes ten seconds for a group with a note."""

    async def _commit(self, writes: Sequence[Write]) -> None:
        if any(isinstance(write, KeepMemo) for write in writes):
            await trio.sleep(10)
        await super()._commit(writes)


async def test_a_note_is_stored_when_keep_returns(autojump_clock: MockClock) -> None:
    """The call returns after the commit, and a cancel ends its wait."""
    agents, took = Agents(), list[float]()

    @agents.agent("agent")
    async def agent(job: JobContext) -> None:
        before = trio.current_time()
        await job.keep("a")
        took.append(trio.current_time() - before)
        with trio.move_on_after(3) as scope:
            await job.keep("b")
        assert scope.cancelled_caught
        assert await job.kept(job.id) == "a"

    async with Stage.open(HeldStore()) as stage:
        stage.runtime.add(agents)
        peer = await stage.connect()
        await peer.hello()
        assert (await run(peer, "agent"))[1] is None
    assert took[0] >= 10


async def test_what_no_note_can_be(autojump_clock: MockClock) -> None:
    """What is not JSON or is too large is refused at once, and the note before stays."""
    agents = Agents()

    @agents.agent("agent")
    async def agent(job: JobContext) -> Json:
        await job.keep("x" * (64 * 1024 - 2))
        with pytest.raises(ValueError, match="at most 65536 bytes, not 65537"):
            await job.keep("x" * (64 * 1024 - 1))
        for value in (object(), {1, 2}, b"x", float("nan"), {1: 2}, "\ud800"):
            with pytest.raises(TypeError, match="a note is JSON"):
                await job.keep(value)
        return len(await job.kept(job.id))

    assert await run_one(agents) == 64 * 1024 - 2


@pytest.mark.parametrize("limit", ["memo_bytes", "memos_bytes"])
async def test_a_note_counts_among_what_a_job_remembers(
    autojump_clock: MockClock, limit: str
) -> None:
    """The limits of memos hold for it, and name themselves."""
    agents = Agents()

    @agents.agent("agent")
    async def agent(job: JobContext) -> str:
        for _ in range(9):  # in place of each other: they do not add up
            await job.keep("x" * 900)
        with pytest.raises(InternalError, match=limit):
            await job.keep("x" * 1_100)
        return "refused"

    assert await run_one(agents, Limits(**{limit: 1_000})) == "refused"


async def test_a_plain_function_keeps_notes() -> None:
    """A `def` agent has the same calls, which block."""
    agents = Agents()

    @agents.agent("agent")
    def agent(job: BlockingContext) -> Json:
        job.keep([1])
        return job.kept(job.id)

    with trio.fail_after(60):
        assert await run_one(agents) == [1]


async def test_a_job_that_ends_keeps_its_note(autojump_clock: MockClock) -> None:
    """While it is being cancelled, an agent can still write down where it was, under a shield."""
    agents = Agents()

    @agents.agent("agent")
    async def agent(job: JobContext) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.fail_after(5, shield=True):
                await job.keep("where it was")

    async with Stage.open(MemoryStore()) as stage:
        stage.runtime.add(agents)
        stage.runtime.add(noting_agents)
        peer = await stage.connect()
        await peer.hello()
        job_id = (await peer.submit("agent"))["job_id"]
        await trio.sleep(1)
        await peer.send("job.cancel", {"job_id": job_id})
        await peer.until_terminal(job_id)
        assert (await run(peer, "reader", job_id))[1] == "where it was"


async def test_a_durable_job_goes_on_beside_its_note(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A later run has the note of the one before, and no run is blamed for not reaching it."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        found = await job.kept(job.id)
        if found is None:
            await job.keep({"done": "of run 1"})
        await job.sleep(50)
        return found

    async with Life.begin(agents) as life:
        job_id = (await life.peer.submit("agent"))["job_id"]
        await trio.sleep(10)
        left = life.killed()
    async with Life.begin(agents, left, before=life) as second:
        end = await second.peer.until_terminal(job_id)
    assert result(end) == {"done": "of run 1"}
    assert not [line for line in caplog.messages if "has not reached" in line]


@pytest.mark.real_tcp
async def test_a_note_survives_a_kill(tmp_path: Path) -> None:
    """A real process is killed as soon as `keep` has returned, and the next one has the note."""
    with trio.fail_after(100):
        async with server_in(tmp_path, "--agents", "tests.durable.noting_agents") as server:
            await server.start()
            async with connect(server.url, token=TOKEN) as client:
                killed = await client.submit("mortal", {"at": 1})
                assert await server.dead()
                await server.start()
                reading = await client.submit("reader", killed.id)
                assert await reading.result() == {"at": 1}
