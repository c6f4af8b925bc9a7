"""The start of a runtime over a store that cannot be used at the moment."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError, MemoryStore
from arcp_trio.store.errors import StoreError
from tests.durability.restarts import lost_job, resumed
from tests.durability.stores import FaultyStore, copy_into, crash
from tests.durability.story import World


@pytest.fixture
def world() -> World:
    """The first runtime."""
    return World(MemoryStore())


@pytest.mark.logs_error("store in trouble")
async def test_a_start_waits_for_a_store_that_cannot_be_written(
    world: World, autojump_clock: MockClock
) -> None:
    """No client gets a session before the ends of the lost jobs are stored."""
    async with world.runtime:
        peer, job_id = await lost_job(world)
        store = copy_into(FaultyStore(commit=1, seconds=30), world.store)
    second, began = World(store, recorder=world.recorder, clock=world.clock), trio.current_time()
    async with second.runtime:
        while trio.current_time() < began + 29:
            with pytest.raises(InternalError, match="the store cannot be used") as refused:
                await resumed(second, peer.resume_from())
            assert refused.value.retryable
            await trio.sleep(1)
        await trio.sleep(6)
        again = await resumed(second, peer.resume_from())
        await again.until_terminal(job_id)


@pytest.mark.logs_error("store in trouble")
async def test_a_start_in_trouble_can_be_ended(world: World, autojump_clock: MockClock) -> None:
    """A start in trouble can be left within a bound; the next start ends the lost job."""
    async with world.runtime:
        peer, job_id = await lost_job(world)
        store = copy_into(FaultyStore(commit=1, seconds=600), world.store)
    began = trio.current_time()
    async with World(store, recorder=world.recorder, clock=world.clock).runtime:
        pass
    assert trio.current_time() - began < 10
    third = World(crash(store), recorder=world.recorder, clock=world.clock)
    async with third.runtime:
        again = await resumed(third, peer.resume_from())
        await again.until_terminal(job_id)


async def test_a_start_over_a_store_that_cannot_be_read_fails(
    world: World, autojump_clock: MockClock
) -> None:
    """A start that cannot read raises the error, and changes nothing."""
    async with world.runtime:
        peer, job_id = await lost_job(world)
        store = copy_into(FaultyStore(read=1), world.store)
    with pytest.raises(StoreError, match="recover"):
        async with World(store).runtime:
            pass
    second = World(store, recorder=world.recorder, clock=world.clock)
    async with second.runtime:
        again = await resumed(second, peer.resume_from())
        await again.until_terminal(job_id)
