"""Submits under one key: the first verdict answers all, and those that wait are bounded."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Limits, MemoryStore
from arcp_trio.store.records import KeyRow
from arcp_trio.testing import Peer
from tests.inside import claimed_keys
from tests.metrics import scrape
from tests.stage import Stage, simple_agents


class SlowKeys(MemoryStore):
    """A store that looks keys up when it is told to, and counts how often."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.go_on = trio.Event()

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        """Return what a key stands for."""
        self.looks += 1
        await self.go_on.wait()
        return await super().key(principal, key, now)


def open_world(store: SlowKeys, **limits: int) -> AbstractAsyncContextManager[Stage[SlowKeys]]:
    """Run a stage over this store."""
    return Stage.open(store, limits=Limits(**limits))


async def submit_again(peer: Peer, count: int, agent: str = "sleeper") -> None:
    """Submit the same under one key, again and again."""
    for _ in range(count):
        await peer.send("job.submit", {"agent": agent, "idempotency_key": "k"})


async def test_the_first_verdict_answers_all(autojump_clock: MockClock) -> None:
    """However many submits wait for one with their key, the key is looked up once."""
    store = SlowKeys()
    async with open_world(store) as world:
        world.runtime.add(simple_agents)
        peers = [await world.welcomed() for _ in range(3)]
        for peer in peers:
            await submit_again(peer, 200)
        await wait_all_tasks_blocked()
        store.go_on.set()
        ids = {
            (await peer.expect("job.accepted"))["payload"]["job_id"]
            for peer in peers
            for _ in range(200)
        }
        assert len(ids) == 1
        assert store.looks == 1
        assert claimed_keys(world.runtime) == 0
        assert scrape(world.runtime)("held", pool="waiting_submits") == 0


async def test_a_refusal_lets_the_next_one_decide(autojump_clock: MockClock) -> None:
    """Where the first submit is refused, each of the others is decided, and looked up, once."""
    store = SlowKeys()
    async with open_world(store) as world:
        peer = await world.welcomed()
        await submit_again(peer, 50, "nobody")
        await wait_all_tasks_blocked()
        store.go_on.set()
        for _ in range(50):
            await peer.expect("session.error", code="AGENT_NOT_AVAILABLE")
        assert store.looks == 50
        assert claimed_keys(world.runtime) == 0


async def test_submits_that_wait_are_bounded(autojump_clock: MockClock) -> None:
    """Past `waiting_submits_per_principal` or `waiting_submits` a submit is refused."""
    store = SlowKeys()
    limits = {"waiting_submits_per_principal": 5, "waiting_submits": 8}
    async with open_world(store, **limits) as world:
        world.runtime.add(simple_agents)
        peer = await world.welcomed()
        await submit_again(peer, 20)
        await wait_all_tasks_blocked()
        store.go_on.set()
        accepted = [await peer.expect("job.accepted") for _ in range(6)]
        assert len({each["payload"]["job_id"] for each in accepted}) == 1
        for _ in range(14):
            error = await peer.expect("session.error")
            assert error["payload"]["details"]["limit"] == "waiting_submits_per_principal"


async def test_submits_that_wait_end_with_their_connection(autojump_clock: MockClock) -> None:
    """When a connection is lost, the submits that it brought wait no longer."""
    store = SlowKeys()
    async with open_world(store) as world:
        world.runtime.add(simple_agents)
        first, second = await world.welcomed(), await world.welcomed()
        await submit_again(first, 1)
        await wait_all_tasks_blocked()
        await submit_again(second, 100)
        await wait_all_tasks_blocked()
        assert scrape(world.runtime)("held", pool="waiting_submits") == 100
        await second.drop()
        await wait_all_tasks_blocked()
        assert scrape(world.runtime)("held", pool="waiting_submits") == 0
        store.go_on.set()
        await first.expect("job.accepted")
