"""A store whose writer fails with something else than `StoreError` ends the runtime, in order."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Agents, BlockingContext, JobContext, Json, MemoryStore, Runtime, SqliteStore
from arcp_trio.store.errors import StoreError
from arcp_trio.store.writes import AcceptJob, FinishJob, PutSession, StartJob, Write
from arcp_trio.testing import Peer, open_peers
from arcp_trio.transport import TransportClosed
from tests.durability.stores import copy_into
from tests.durability.support import FailingStore, agents
from tests.stage import make_runtime
from tests.store.engines import job_row

FAILED = "store writer failed"

BOUND_SECONDS = 10.0
"""A shutdown that waits for nothing but its own bounds takes less."""


class MistakenStore(MemoryStore):
    """Raises `error` instead of storing a group that has a write of type `kind`."""

    def __init__(self, kind: type[Write], error: BaseException) -> None:
        super().__init__()
        self._kind = kind
        self._error = error

    async def _commit(self, writes: Sequence[Write]) -> None:
        if any(type(write) is self._kind for write in writes):
            await trio.lowlevel.checkpoint()
            raise self._error
        await super()._commit(writes)


async def run_a_job(runtime: Runtime) -> None:
    """Enter the runtime, have it do a job, and stay until something ends the block."""
    async with runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        await peer.submit("ticker", {"n": 0})
        await trio.sleep_forever()


@pytest.mark.logs_error(FAILED)
@pytest.mark.parametrize("error", [RuntimeError("a fault"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("kind", [PutSession, AcceptJob, StartJob, FinishJob])
async def test_the_error_leaves_the_block_as_itself(
    kind: type[Write], error: BaseException, autojump_clock: MockClock
) -> None:
    """The block ends within the bounds of a shutdown, whatever waits for the group that fails."""
    began = trio.current_time()
    with pytest.raises(type(error)) as raised:
        await run_a_job(make_runtime(agents, store=MistakenStore(kind, error)))
    assert raised.value is error
    assert trio.current_time() - began <= BOUND_SECONDS


@pytest.mark.logs_error(FAILED)
async def test_clients_get_a_farewell(autojump_clock: MockClock) -> None:
    """The connection of a session that waits for nothing is closed with 1001."""
    runtime = make_runtime(agents, store=MistakenStore(FinishJob, RuntimeError("a fault")))
    entered = trio.Event()

    async def host() -> None:
        async with runtime:
            entered.set()
            await trio.sleep_forever()

    async def expect_failure() -> None:
        with pytest.raises(RuntimeError, match="a fault"):
            await host()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_failure)
        await entered.wait()
        async with open_peers(runtime) as peers:
            idle, busy = await peers.connect(), await peers.connect()
            await idle.hello()
            await busy.hello()
            await busy.submit("stayer", {})
            await busy.send("job.submit", {"agent": "ticker", "input": {"n": 0}})
            with pytest.raises(TransportClosed) as closed:
                await idle.receive()
            assert closed.value.code == 1001


@pytest.mark.logs_error(FAILED)
async def test_an_error_of_the_block_wins(autojump_clock: MockClock) -> None:
    """What the block raises while it is cancelled leaves it; the log has the writer's error."""

    async def fail_too(runtime: Runtime) -> None:
        async with runtime:
            try:
                async with open_peers(runtime) as peers:
                    await (await peers.connect()).hello()
            finally:
                raise ValueError("its own")

    store = MistakenStore(PutSession, RuntimeError("a fault"))
    with pytest.raises(ValueError, match="its own"):
        await fail_too(make_runtime(agents, store=store))


async def test_a_runtime_that_has_not_started_raises_the_error_where_it_is_entered(
    autojump_clock: MockClock,
) -> None:
    """A start stores the ends of the jobs that it finds unfinished; here it cannot."""
    before = MemoryStore()
    async with trio.open_nursery() as nursery:
        await nursery.start(before.run)
        await before.put(AcceptJob(job_row("J"), None)).committed()
        nursery.cancel_scope.cancel()
    error = RuntimeError("a fault")
    runtime = make_runtime(agents, store=copy_into(MistakenStore(FinishJob, error), before))
    with pytest.raises(RuntimeError) as raised:
        await runtime.__aenter__()
    assert raised.value is error


@pytest.mark.logs_error(FAILED)
async def test_the_error_of_a_store_with_a_nursery_is_in_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of `SqliteStore` runs beside its housekeeping."""
    commit = SqliteStore._commit

    async def mistaken(self: SqliteStore, writes: Sequence[Write]) -> None:
        if any(type(write) is FinishJob for write in writes):
            raise sqlite3.IntegrityError("a fault")
        await commit(self, writes)

    monkeypatch.setattr(SqliteStore, "_commit", mistaken)
    store = SqliteStore(tmp_path / "arcp.db", synchronous="OFF")
    with trio.fail_after(60), pytest.raises(sqlite3.IntegrityError, match="a fault"):
        await run_a_job(make_runtime(agents, store=store))


# -- agents that do not stop


class Stone:
    """An agent in a thread that does not stop, unless the runtime waits for it for a minute."""

    def __init__(self) -> None:
        self.agents = Agents()
        self.agents.agent("stone")(self._lie)
        self.begun = threading.Event()
        self._over = threading.Event()

    def _lie(self, _job: BlockingContext) -> Json:
        self.begun.set()
        self._over.wait(60)
        self._over.set()
        return None

    def leave(self) -> None:
        """Let the thread go; fail if the runtime has waited until it went by itself."""
        assert not self._over.is_set()
        self._over.set()


async def run_with_a_stone(
    runtime: Runtime, stone: Stone, end: Callable[[Peer], Awaitable[None]]
) -> None:
    """Enter the runtime, have it start a stone's job, and call `end`."""
    async with runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        await peer.submit("stone", {})
        await trio.to_thread.run_sync(stone.begun.wait)
        await end(peer)


@pytest.mark.logs_error(FAILED)
async def test_a_thread_does_not_hold_up_the_end() -> None:
    """The runtime leaves a thread that does not stop, although its job cannot end."""
    stone = Stone()
    store = MistakenStore(FinishJob, RuntimeError("a fault"))
    runtime = make_runtime(agents, stone.agents, store=store)

    async def have_a_group_fail(peer: Peer) -> None:
        await peer.send("job.submit", {"agent": "ticker", "input": {"n": 0}})
        await trio.sleep_forever()

    with pytest.raises(RuntimeError, match="a fault"):
        await run_with_a_stone(runtime, stone, have_a_group_fail)
    stone.leave()


@pytest.mark.logs_error("store in trouble")
async def test_a_thread_does_not_hold_up_the_end_in_trouble() -> None:
    """The same holds for a shutdown while the store is in trouble."""
    stone = Stone()
    store = FailingStore()
    runtime = make_runtime(agents, stone.agents, store=store)

    async def have_trouble(peer: Peer) -> None:
        store.broken = True
        await peer.send("job.submit", {"agent": "ticker", "input": {"n": 0}})
        await store.troubled()

    await run_with_a_stone(runtime, stone, have_trouble)
    stone.leave()


clingers = Agents()


@clingers.agent("speaker")
async def speaker(job: JobContext) -> Json:
    """Say something at last."""
    try:
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            await job.log("I have cleaned up")


@clingers.agent("noter")
async def noter(job: JobContext) -> Json:
    """Keep one note after the other."""
    with trio.CancelScope(shield=True):
        for number in range(10_000):
            await job.keep(number)
            await trio.sleep(0.01)


@clingers.agent("parent")
async def parent(job: JobContext) -> Json:
    """Wait for a child."""
    with trio.CancelScope(shield=True):
        await (await job.delegate("stayer", {})).result()


class TroubledStore(MistakenStore):
    """Is in trouble before it fails."""

    async def _commit(self, writes: Sequence[Write]) -> None:
        if self.trouble is None and any(type(write) is self._kind for write in writes):
            raise StoreError("no space left on device")
        await super()._commit(writes)


@pytest.mark.logs_error(f"{FAILED}|store in trouble")
@pytest.mark.parametrize("agent", ["speaker", "noter", "parent"])
async def test_an_agent_that_shields_itself_waits_no_longer_for_the_store(
    agent: str, autojump_clock: MockClock
) -> None:
    """A call of such an agent fails when its job is over, although nobody can cancel it."""

    async def run_until_the_writer_fails(runtime: Runtime) -> None:
        async with runtime, open_peers(runtime) as peers:
            peer = await peers.connect()
            await peer.hello()
            await peer.submit(agent, {}, lease_request={"agent.delegate": ["*"]})
            await trio.sleep(1)
            await peer.send("job.submit", {"agent": "ticker", "input": {"n": 0}})
            await trio.sleep_forever()

    began = trio.current_time()
    store = TroubledStore(FinishJob, RuntimeError("a fault"))
    with pytest.raises(RuntimeError, match="a fault"):
        await run_until_the_writer_fails(make_runtime(agents, clingers, store=store))
    assert trio.current_time() - began <= BOUND_SECONDS
