"""A store that fails at any point of a story: nothing is lost, and clients get no wrong frame."""

from __future__ import annotations

import logging
from itertools import count

import pytest
from trio.testing import MockClock

from tests.durability.stores import FaultyStore
from tests.durability.story import Client, World, tell_story, two_clients

TROUBLE = "store in trouble"


async def go_through(store: FaultyStore) -> tuple[Client, Client]:
    """Go through the whole story over this store."""
    world = World(store)
    try:
        async with world.runtime, two_clients(world) as (one, other):
            await tell_story(world, one, other)
    except BaseException as error:
        error.add_note(f"with {store.failed[:3]} failing")
        raise
    return one, other


@pytest.mark.logs_error(TROUBLE)
@pytest.mark.parametrize("applied", [False, True], ids=["not stored", "stored"])
@pytest.mark.parametrize("seconds", [0, 0.4, 7])
async def test_every_commit_may_fail(
    seconds: float,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
    *,
    applied: bool,
) -> None:
    """At each of them in turn, once or for a while: the story goes on to the same end."""
    for n in count(1):
        caplog.clear()
        store = FaultyStore(commit=n, seconds=seconds, applied=applied)
        clients = await go_through(store)
        if not store.failed:
            break
        told = [r for r in caplog.records if r.levelno >= logging.ERROR]
        assert len(told) == 1, f"logged {len(told)} times"
        for client in clients:
            assert set(client.closings) <= {1011}
    assert n > 20


@pytest.mark.parametrize("seconds", [0, 0.4, 7])
async def test_every_read_may_fail(seconds: float, autojump_clock: MockClock) -> None:
    """At each of them in turn, once or for a while: the story goes on to the same end."""
    # The first read is that of the start.
    for n in count(2):
        store = FaultyStore(read=n, seconds=seconds)
        clients = await go_through(store)
        if not store.failed:
            break
        for client in clients:
            assert set(client.closings) <= {1011}
    assert n > 20
