"""`Client.connection_states` tells each loss of the connection and each return."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import ConnectionLost, connect
from tests.client.support import TOKEN, Network, real_runtime


async def test_each_change_is_told(autojump_clock: MockClock) -> None:
    """The current state comes at once, changes as they happen, and the end with the session."""
    told: dict[float, bool] = {}

    async def listen() -> None:
        async for there_is in client.connection_states():
            told[trio.current_time()] = there_is

    async with real_runtime() as runtime, trio.open_nursery() as nursery:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as client:
            nursery.start_soon(listen)
            await trio.sleep(1)
            network.up = False
            await network.cut()
            await trio.sleep(5)
            assert told == {0: True, 1: False}
            network.up = True
            await trio.sleep(10)
            states = client.connection_states()
            assert await anext(states)
        assert list(told.values()) == [True, False, True]
        with pytest.raises(StopAsyncIteration):
            await anext(states)


async def test_a_slow_listener_misses_nothing(autojump_clock: MockClock) -> None:
    """Each listener gets every change since it began, however short and however late it reads."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as client:
            from_the_start = client.connection_states()
            for _ in range(3):
                await network.cut()
                await trio.sleep(1)
                assert client.connected
            network.up = False
            await network.cut()
            await trio.sleep(5)
            late = client.connection_states()
        assert [state async for state in from_the_start] == [True, False] * 4
        assert [state async for state in late] == [False]


async def test_what_cannot_be_made_good_is_the_end(autojump_clock: MockClock) -> None:
    """A loss after which the client does not reconnect ends the iteration."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN, reconnect_seconds=0) as client:
            states = client.connection_states()
            await network.cut()
            with pytest.raises(ConnectionLost):
                await client.wait_closed()
        assert [state async for state in states] == [True]


async def test_the_next_attempt_is_known(autojump_clock: MockClock) -> None:
    """While the client waits to try again, it says until when; otherwise it says nothing."""
    async with real_runtime() as runtime:
        network = Network(runtime)
        async with connect(network.open, token=TOKEN) as client:
            told = [client.next_attempt]
            network.up = False
            await network.cut()
            await trio.sleep(60)
            first = client.next_attempt or 0
            assert 0 < first - trio.current_time() <= 10
            await trio.sleep_until(first + 0.01)
            second = client.next_attempt or 0
            assert second > first
            network.up = True
            await trio.sleep_until(second + 0.01)
            assert client.connected
            told.append(client.next_attempt)
    assert told == [None, None]
