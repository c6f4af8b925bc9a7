"""Sessions that watch, look away and move at random, under jobs that emit at several nodes."""

from __future__ import annotations

import random
from typing import Final

import pytest
import trio

from arcp_trio.store.postgres._wake_ups import WakeUps
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import TERMINAL, Frame
from tests.cluster.side_by_side import NodeHere
from tests.cluster.tellers import Desk, moved, quiet, subscribed, two_nodes

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

STEPS: Final = 60
WATCHERS: Final = 3
END: Final = -1
"""What a watcher notes for a terminal."""


class Watcher:
    """A client that notes what it hears of each job that it watches."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.heard: dict[str, list[int]] = {}
        """By job that it watches, from its first event on."""

    def _note(self, frame: Frame) -> None:
        heard = self.heard.get(frame.get("job_id", ""))
        if heard is None:
            return
        if frame["type"] in TERMINAL:
            heard.append(END)
        elif frame["type"] == "job.event":
            heard.append(int(frame["payload"]["body"]["message"].rstrip("x")))

    async def receive(self, most: int = 1) -> None:
        """Receive some frames, of those that come soon."""
        with trio.move_on_after(0.02):
            for _ in range(most):
                self._note(await self.peer.receive())

    async def watch(self, job_id: str) -> None:
        """Subscribe to a job, from its first event on."""
        passed = len(self.peer.seen)
        answered = await subscribed(self.peer, job_id, history=True)
        self._note_all(self.peer.seen[passed:])
        self.heard[str(answered["job_id"])] = []

    async def look_away(self, job_id: str) -> None:
        """Unsubscribe from a job, and wait until nothing of it can come any more."""
        del self.heard[job_id]
        await self.peer.send("job.unsubscribe", {"job_id": job_id})
        passed = len(self.peer.seen)
        request = await self.peer.send("session.list_jobs", {})
        await self.peer.answer("session.jobs", request)
        self._note_all(self.peer.seen[passed:])

    async def move(self, node: NodeHere) -> None:
        """Go on at a node."""
        self.peer = await moved(self.peer, node)
        self._note_all(self.peer.seen)

    def _note_all(self, frames: list[Frame]) -> None:
        for frame in frames:
            self._note(frame)

    async def hear_all(self, due: dict[str, int]) -> None:
        """Receive the rest of what it watches, and check it; `due` says how much jobs have said."""
        while any(END not in heard for heard in self.heard.values()):
            self._note(await self.peer.receive())
        for job_id, heard in self.heard.items():
            assert heard == [*range(due[job_id]), END]


class Play:
    """Two nodes with two jobs each, and what happens to them."""

    def __init__(self, chance: random.Random, desk: Desk, nodes: list[NodeHere]) -> None:
        self._chance = chance
        self._desk = desk
        self._nodes = nodes
        self._watchers: list[Watcher] = []
        self._due: dict[str, int] = {}
        """By job, how much it was told to say."""
        self._ended: set[str] = set()

    async def run(self) -> None:
        """Do something at random, many times; then have everything end, and check what came."""
        for node in self._nodes:
            owner = await quiet(node)
            for letters in (0, 3_000):
                self._due[(await owner.submit("teller", letters))["job_id"]] = 0
        for _ in range(WATCHERS):
            self._watchers.append(Watcher(await quiet(self._chance.choice(self._nodes))))
        acts = (self._say, self._watch, self._look_away, self._receive, self._move, self._end)
        for act in self._chance.choices(acts, weights=(35, 20, 7, 15, 20, 3), k=STEPS):
            await act(self._chance.choice(self._watchers), self._chance.choice([*self._due]))
        for job_id in self._due:
            await self._end(self._watchers[0], job_id)
        for watcher in self._watchers:
            await watcher.hear_all(self._due)

    async def _say(self, _: Watcher, job_id: str) -> None:
        if job_id not in self._ended:
            count = self._chance.choice([1, 5, 100])
            self._due[job_id] += count
            await self._desk.say(job_id, count)

    async def _end(self, _: Watcher, job_id: str) -> None:
        if job_id not in self._ended:
            self._ended.add(job_id)
            await self._desk.end(job_id)

    async def _watch(self, watcher: Watcher, job_id: str) -> None:
        if job_id not in watcher.heard:
            await watcher.watch(job_id)

    async def _look_away(self, watcher: Watcher, job_id: str) -> None:
        if END not in watcher.heard.get(job_id, [END]):
            await watcher.look_away(job_id)

    async def _receive(self, watcher: Watcher, _: str) -> None:
        await watcher.receive(self._chance.choice([1, 10, 200]))

    async def _move(self, watcher: Watcher, _: str) -> None:
        await watcher.move(self._chance.choice(self._nodes))


async def play(database: str, seed: int) -> None:
    """Run one play."""
    chance = random.Random(seed)
    few = chance.choice([2, 50, 1_000])
    # A session that subscribes again has entries again, which the audit takes for a fault.
    async with two_nodes(
        database, audited=False, follow_seconds=0.05, outbox_items=few, tail_frames=few
    ) as (desk, *nodes):
        await Play(chance, desk, nodes).run()


@pytest.mark.parametrize("seed", range(2))
async def test_watching_at_random(database: str, seed: int) -> None:
    """Whatever sessions do, each subscription brings all of its job, in order, once."""
    await play(database, seed)


async def test_watching_without_wake_ups(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same holds at nodes that hear no wake-ups."""
    monkeypatch.setattr(WakeUps, "_hear", lambda *_: None)
    await play(database, seed=7)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 200))
async def test_watching_at_random_for_long(database: str, seed: int) -> None:
    """The same holds for many more of these plays."""
    await play(database, seed)
