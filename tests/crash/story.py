"""Eight sessions of two principals at work, while the server is killed again and again."""

from __future__ import annotations

import random
from pathlib import Path

import trio

from arcp_trio.transport.base import TransportClosed
from tests.crash.client import Client, World
from tests.crash.process import Server, server_over


async def go_through(folder: Path, seed: int, cycles: int) -> None:
    """Kill a server over one data folder `kills` times; check everything at the end."""
    async with server_over(folder) as server:
        story = Story(server, seed)
        try:
            while story.kills < cycles:
                await story.cycle()
            await story.end()
        except BaseException as error:
            error.add_note(f"seed {seed}, after {story.kills} kills of {cycles}")
            raise


class Story:
    """A seeded sequence of actions; only their exact timing is the machine's."""

    def __init__(self, server: Server, seed: int) -> None:
        self.kills = 0
        self._server = server
        self._chance = random.Random(seed)
        world = World(server)
        self._clients = [
            Client(world, f"{principal}{number}", principal)
            for principal in ("alice", "bob")
            for number in range(4)
        ]

    async def cycle(self) -> None:
        """Start the server, let all clients resume and work, and kill it."""
        await self._server.start()
        ready = [trio.Event() for _ in self._clients]
        async with trio.open_nursery() as nursery:
            for client, caught_up in zip(self._clients, ready, strict=True):
                chance = random.Random(self._chance.random())
                nursery.start_soon(self._live, client, caught_up, chance)
            if self._chance.random() < 0.25:
                await trio.sleep(self._chance.uniform(0, 0.15))  # some are still coming back
            else:
                for caught_up in ready:
                    await caught_up.wait()
                await trio.sleep(self._chance.uniform(0.002, 0.7))
            await self._server.kill()
        self.kills += 1
        for client in self._clients:
            client.server_died()

    async def end(self) -> None:
        """Read again everything that was not acknowledged, and then do some new work."""
        await self._server.start()
        async with trio.open_nursery() as nursery:
            for client in self._clients:
                nursery.start_soon(self._look_again, client)

    async def _live(self, client: Client, caught_up: trio.Event, chance: random.Random) -> None:
        """Be attached most of the time, until the server is killed."""
        try:
            if chance.random() < 0.2:
                caught_up.set()  # this client comes later, perhaps too late
                await trio.sleep(chance.uniform(0, 0.5))
            while True:
                highest, after = client.highest, client.some_number(chance)
                async with client.attached(after):
                    await client.caught_up(after, highest)
                    await settle_keys(client, chance)
                    caught_up.set()
                    await self._work(client, chance)
                await trio.sleep(chance.uniform(0, 0.1))
        except (TransportClosed, OSError):
            assert self._server.down, f"{client} lost a server that was not killed"

    async def _work(self, client: Client, chance: random.Random) -> None:
        for _ in range(chance.choice([3, 10, 1_000])):
            match chance.randrange(10):
                case 0:
                    await client.submit_endless()
                case 1 | 2:
                    await client.submit(None, chance.randint(1, 120), 20, 0.002)
                case 3 | 4 | 5:
                    # Some of them are keys of other sessions too.
                    await client.submit_keyed(f"key {chance.randrange(1_000)}")
                case 6:
                    await client.cancel()
                case 7 if client.name[-1] in "01":
                    await client.ack()
                case _:
                    pass
            await trio.sleep(chance.uniform(0, 0.1))

    async def _look_again(self, client: Client) -> None:
        highest = client.highest
        async with client.attached(client.acked):
            await client.caught_up(client.acked, highest)
            await settle_keys(client, self._chance)
            job_id = await client.answered(await client.submit(None, 3, 2, 0.001))
            await client.ended_all({job_id})


async def settle_keys(client: Client, chance: random.Random) -> None:
    """Submit again unanswered and some answered keys, and wait for the ends of all jobs."""
    keys = [key for key, job in client.keys.items() if job is None or chance.random() < 0.1]
    jobs = [await client.answered(await client.submit_keyed(key)) for key in keys]
    await client.ended_all(set(jobs))
