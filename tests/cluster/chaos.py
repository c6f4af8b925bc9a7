"""Random faults of all kinds, and clients that work meanwhile."""

from __future__ import annotations

import random
import signal
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from tests.cluster.client import Client
from tests.cluster.nodes import NODE_SECONDS, Node
from tests.cluster.stage import Stage
from tests.postgres import execute

_PAUSE_SECONDS: Final = 0.3
"""The longest time between two faults; many of them last longer."""
_SPARED: Final = 0.9
"""How often a node is left in peace while something is done to the others."""


class Chaos:
    """A seeded sequence of faults; only their exact timing is the machine's."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.done: dict[str, int] = {}
        """How often each fault was done."""
        self._stage = stage
        self._chance = random.Random(seed)
        self._busy: set[Node] = set()
        """Nodes to which something is being done."""
        self._freed = trio.Event()
        self._faults: dict[str, Callable[[Node], Awaitable[None]]] = {
            "killed": self._kill,
            "ended": self._end,
            "stopped": self._stop,
            "cut off": self._cut_off,
            "line cut": self._cut_line,
            "slow line": self._slow_line,
            "clients cut": self._cut_clients,
            "backends cut": self._cut_backends,
        }

    async def run(self, faults: int) -> None:
        """Do this number of faults, each to a node to which nothing is being done."""
        async with trio.open_nursery() as nursery:
            for _ in range(faults):
                node = self._chance.choice(await self._free())
                name = self._chance.choice(list(self._faults))
                self.done[name] = self.done.get(name, 0) + 1
                self._busy.add(node)
                nursery.start_soon(self._do, node, self._faults[name])
                await trio.sleep(self._chance.uniform(0, _PAUSE_SECONDS))

    async def _free(self) -> list[Node]:
        """Wait until there is a node to which nothing is being done; return all of them.

        Mostly another one is left in peace meanwhile: else clients would never get far on a machine
        on which nodes take long to start.
        """
        spared = int(self._chance.random() < _SPARED)
        while len(free := [n for n in self._stage.cluster.nodes if n not in self._busy]) <= spared:
            self._freed = trio.Event()
            await self._freed.wait()
        return free

    async def _do(self, node: Node, fault: Callable[[Node], Awaitable[None]]) -> None:
        try:
            await fault(node)
            await self._revive(node)
        finally:
            self._busy.discard(node)
            self._freed.set()

    async def _revive(self, node: Node) -> None:
        """Start the node again if it has ended, or was fenced and is about to."""
        if node.running and not node.serves:
            node.serves = True
        # Its connections may be cut while it starts.
        while not node.running:
            await node.tries_to_start()

    async def _kill(self, node: Node) -> None:
        await node.kill()
        await trio.sleep(self._chance.uniform(0, NODE_SECONDS))

    async def _end(self, node: Node) -> None:
        node.signal(signal.SIGTERM)
        await node.ended()

    async def _stop(self, node: Node) -> None:
        node.signal(signal.SIGSTOP)
        await trio.sleep(self._chance.uniform(0, 2 * NODE_SECONDS))
        node.signal(signal.SIGCONT)
        await trio.sleep(1)

    async def _cut_off(self, node: Node) -> None:
        node.line.shut(requests=self._chance.random() < 0.7, answers=self._chance.random() < 0.7)
        await trio.sleep(self._chance.uniform(0, 2 * NODE_SECONDS))
        node.line.open()
        await trio.sleep(1)

    async def _cut_line(self, node: Node) -> None:
        await node.line.cut()

    async def _slow_line(self, node: Node) -> None:
        node.line.delay = self._chance.uniform(0, 0.1)
        await trio.sleep(1)
        node.line.delay = 0

    async def _cut_clients(self, node: Node) -> None:
        await self._stage.cluster.balancer.cut(node.port)

    async def _cut_backends(self, node: Node) -> None:
        await execute(
            self._stage.cluster.database,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE"
            " datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.3",
        )


class Work:
    """What clients do meanwhile: jobs, each followed to its end by its client and by another."""

    def __init__(
        self, clients: list[Client], seed: int, *, pause: float = 0.01, may_lose: bool = True
    ) -> None:
        """Have these clients work.

        Args:
            clients: who works.
            seed: chooses what they do.
            pause: seconds between two lines of a job.
            may_lose: whether a job may end because its node is gone.
        """
        self.jobs = 0
        self.over = False
        """Whether no new job is to be begun."""
        self._clients = clients
        self._seed = seed
        self._pause = pause
        self._may_lose = may_lose

    async def run(self) -> None:
        """Work until it is over."""
        async with trio.open_nursery() as nursery:
            for number, client in enumerate(self._clients):
                same = [each for each in self._clients if each.principal == client.principal]
                other = same[same.index(client) - 1]
                nursery.start_soon(self._work, client, other, random.Random(self._seed + number))

    async def _work(self, client: Client, other: Client, chance: random.Random) -> None:
        number = 0
        while not self.over:
            number += 1
            await self._job(client, other, chance, f"{id(client)} {number}")

    async def _job(self, client: Client, other: Client, chance: random.Random, key: str) -> None:
        total = chance.randint(1, 150)
        if chance.random() < 0.2:
            steps = chance.randint(1, 10)
            job = await client.submit("steps", steps, key)
            end = await client.end(job)
            assert end.get("result") == sum(range(steps)), end
        else:
            job = await client.submit("count", [total, self._pause], key)
            follows = chance.random() < 0.5
            if follows:
                await other.subscribe(job)
            if chance.random() < 0.2:
                await client.cancel(job)
            self._check(await client.end(job), client.said(job), total)
            if follows:
                assert await other.end(job) == await client.end(job)
                assert other.said(job) == client.said(job)
        self.jobs += 1

    def _check(self, end: dict[str, object], said: int, total: int) -> None:
        if end["type"] == "job.result":
            assert (end["result"], said) == (total, total), end
        else:
            lost = (end["code"], end["retryable"]) == ("INTERNAL_ERROR", True)
            assert (lost and self._may_lose) or end["code"] == "CANCELLED", end
