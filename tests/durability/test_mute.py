"""Many clients that connect and send nothing."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import MemoryStore
from arcp_trio.transport import TransportClosed
from tests.durability.story import World
from tests.footprint import tasks
from tests.ordering.lines import Line, line

CROWD = 1_000

HANDSHAKE_SECONDS = 10


def connect_mute(world: World) -> Line:
    """Open a connection on which nothing is sent."""
    near, far = line()
    deadline = trio.current_time() + HANDSHAKE_SECONDS
    world.runtime.start_connection(partial(world.runtime.attend, far, deadline=deadline), "mute")
    return near


async def test_a_mute_crowd_keeps_nobody_out(autojump_clock: MockClock) -> None:
    """A client can work beside them, and they are closed in time and forgotten."""
    world = World(MemoryStore())
    async with world.runtime:
        before = tasks()
        began = trio.current_time()
        crowd = [connect_mute(world) for _ in range(CROWD)]
        await wait_all_tasks_blocked()
        peer = world.connect()
        await peer.hello()
        await peer.until_terminal((await peer.submit("teller", 0))["job_id"])
        assert trio.current_time() == began
        await peer.close()
        for near in crowd:
            await near.receive()  # the reason
            with pytest.raises(TransportClosed) as closed:
                await near.receive()
            assert closed.value.code == 1008
        assert trio.current_time() - began <= HANDSHAKE_SECONDS + 1
        await wait_all_tasks_blocked()
        assert tasks() <= before
