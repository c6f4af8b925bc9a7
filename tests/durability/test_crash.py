"""A runtime that is killed at any commit of a story: its clients get again all they were told."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import MemoryStore
from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.records import Entry
from arcp_trio.testing import TrioClock
from arcp_trio.testing.frames import TERMINAL, Frame
from arcp_trio.testing.recorder import WireRecorder
from tests.durability.memories import Memory, remember
from tests.durability.stores import WatchedStore, crash
from tests.durability.story import Client, World, tell_story, told, two_clients

LOST = ("INTERNAL_ERROR", True)
CANCELLED = ("CANCELLED", False)
"""The code, and whether it is retryable, of a job that is cancelled by the end of its runtime."""


@attrs.frozen
class Moment:
    """The moment before a commit: what is stored, and what the clients know."""

    number: int
    store: MemoryStore
    recorder: WireRecorder
    clock: TrioClock
    memories: list[Memory]


async def live_through(settle: Callable[[], Awaitable[None]]) -> list[Moment]:
    """Go through the story, and keep every moment; wait for `settle` before each commit."""
    moments: list[Moment] = []

    async def keep_moment() -> None:
        await settle()
        recorder = copy.deepcopy(world.recorder)
        memories = [remember(client) for client in present if client.session_id]
        moment = Moment(len(moments), crash(store), recorder, world.clock, memories)
        moments.append(moment)

    present: list[Client] = []
    store = WatchedStore(keep_moment)
    world = World(store)
    async with world.runtime, two_clients(world) as clients:
        present += clients
        await tell_story(world, *clients)
        await keep_moment()
    return moments


PACES: dict[str, Callable[[], Awaitable[None]]] = {
    "as it comes": trio.lowlevel.checkpoint,
    "all delivered": wait_all_tasks_blocked,
    "slow": partial(trio.sleep, 0.3),
}


@pytest.mark.parametrize("pace", PACES)
async def test_dying_at_every_commit(pace: str, autojump_clock: MockClock) -> None:
    """Frames that were sent are sent again, and every job that was asked for ends once."""
    moments = await live_through(PACES[pace])
    assert len(moments) > 20
    await trio.sleep(3_600)  # longer than any window, but no runtime ran that could end one
    for moment in moments:
        try:
            await start_twice(crash(moment.store), moment.clock)
            await live_on(moment)
        except BaseException as error:
            error.add_note(f"at moment {moment.number} of {len(moments)}")
            raise


async def start_twice(store: MemoryStore, clock: TrioClock) -> None:
    """Start twice, and check that the second start changes nothing."""
    async with World(store, clock=clock).runtime:
        pass
    once = await content(store)
    async with World(store, clock=clock).runtime:
        pass
    assert await content(store) == once


async def content(store: MemoryStore) -> dict[str, object]:
    """Return all sessions and jobs."""
    sessions = {
        session_id: await store.session(session_id) for session_id in store._tables.sessions
    }
    jobs = {i: (await store.job(i), tails(await journal(store, i))) for i in store._tables.journals}
    return {**sessions, **jobs}


async def live_on(moment: Moment) -> None:
    """Let all clients come back to another runtime over the stored state."""
    world = World(moment.store, recorder=moment.recorder, clock=moment.clock)
    known = {job_id for memory in moment.memories for job_id in memory.jobs}
    before = {job_id: await journal(moment.store, job_id) for job_id in known}
    rows = [await moment.store.job(job_id) for job_id in known]
    cancelled = {row.job_id for row in rows if row is not None and row.cancelled is not None}
    async with world.runtime:
        ends = [await come_back(world, memory) for memory in moment.memories]
        for job_id, entries in before.items():
            now = await journal(moment.store, job_id)
            assert tails(now[: len(entries)]) == tails(entries)
            assert [entry.terminal for entry in now] == [False] * (len(now) - 1) + [True]
            frames = [end[job_id] for end in ends if job_id in end]
            assert frames
            for frame in frames:
                assert frame["id"].encode() in now[-1].tail
                if len(now) > len(entries):
                    end = (frame["payload"]["code"], frame["payload"]["retryable"])
                    assert end == (CANCELLED if job_id in cancelled else LOST)


async def come_back(world: World, memory: Memory) -> dict[str, Frame]:
    """Resume, repeat the submits with a key, wait for all ends, and return them."""
    client = Client(world)
    client.session_id, client.token, client.floor = memory.session_id, memory.token, memory.floor
    async with tasks_beside() as nursery:
        nursery.start_soon(client.run)
        for key, asked in memory.keys.items():
            job_id = await client.submit(asked["agent"], asked["input"], key=key)
            assert memory.keyed.get(key, job_id) == job_id
            if asked["agent"] == "waiter" and job_id in world.runs:
                await client.cancel(job_id)
        ends = {frame["job_id"]: frame for frame in memory.frames if frame["type"] in TERMINAL}
        for job_id in memory.jobs | client.jobs:
            if job_id not in ends:
                ends[job_id] = await client.end_of(job_id)
        fresh = await client.submit("teller", 2)
        assert (await client.end_of(fresh))["payload"]["result"] == 2
        assert client.told(fresh) == told(2)
    # The recorder has checked that a frame with an old number or id is the old frame.
    assert memory.promised <= {frame["id"] for frame in client.frames}
    return ends


def tails(entries: list[Entry]) -> list[bytes]:
    """Return the tails of entries."""
    return [entry.tail for entry in entries]


async def journal(store: MemoryStore, job_id: str) -> list[Entry]:
    """Return all entries of a job."""
    assert await store.job(job_id) is not None, "accepted, and forgotten"
    return [entry for _, entry in await store.owed({job_id: 0}, 1_000, 1_000_000)]
