"""Large frames are decoded one at a time, each principal's in its turn."""

from __future__ import annotations

import json

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import MemoryStore
from arcp_trio.rounds import Rounds
from arcp_trio.testing import Peer
from tests.inside import decoding_turn
from tests.stage import BOB, Stage, simple_agents

LARGE = 100_000
"""Characters: more than are decoded without a turn."""


async def test_each_principal_has_its_turn() -> None:
    """However much of one principal waits, another one's work comes within a round."""
    rounds, done = Rounds(), list[str]()

    async def work(principal: str) -> None:
        async with rounds.turn(principal):
            await trio.lowlevel.checkpoint()
            done.append(principal)

    async with trio.open_nursery() as nursery, rounds.turn("dave"):
        for principal, count in (("alice", 10), ("bob", 2), ("carol", 2)):
            for _ in range(count):
                nursery.start_soon(work, principal)
            await wait_all_tasks_blocked()
    assert done == ["alice", "bob", "carol"] * 2 + ["alice"] * 8


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), max_size=20))
def test_one_piece_of_work_at_a_time(workers: list[tuple[int, int, int]]) -> None:
    """No two turns overlap, and work that is cancelled, waiting or begun, blocks no other."""
    rounds, under_way = Rounds(), 0

    async def work(principal: int, begins: int, ends: int) -> None:
        nonlocal under_way
        await trio.sleep(begins)
        with trio.move_on_after(ends):
            async with rounds.turn(str(principal)):
                under_way += 1
                try:
                    assert under_way == 1
                    await trio.sleep(1)
                finally:
                    under_way -= 1

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(work, *worker)
        with trio.fail_after(2):
            await work(0, 0, 9)

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_large_frames_of_one_hold_up_no_other(autojump_clock: MockClock) -> None:
    """Another principal's large frame is not after those of twenty connections."""
    async with Stage.open(MemoryStore()) as stage:
        alices = [await stage.welcomed() for _ in range(20)]
        bob = await stage.welcomed(token=BOB)
        order: list[str] = []

        async def answered(peer: Peer, who: str) -> None:
            await peer.expect("session.error")
            order.append(who)

        async with trio.open_nursery() as nursery, decoding_turn(stage.runtime, "carol"):
            for peer, who in (*((each, "alice") for each in alices), (bob, "bob")):
                await peer.send_raw(submit("x", LARGE))
                nursery.start_soon(answered, peer, who)
            await wait_all_tasks_blocked()
        assert len(order) == 21
        assert order.index("bob") <= 4


async def test_the_order_of_frames_is_kept(autojump_clock: MockClock) -> None:
    """A small frame after a large one of the same connection is answered after it."""
    async with Stage.open(MemoryStore()) as stage:
        stage.runtime.add(simple_agents)
        peer = await stage.welcomed()
        for n in range(10):
            await peer.send_raw(submit(f"s{n}", (n % 2) * LARGE))
        answers = [await peer.expect("session.error") for _ in range(10)]
        assert [each["payload"]["request_id"] for each in answers] == [f"s{n}" for n in range(10)]


def submit(request_id: str, size: int) -> str:
    """Return a submit of an input of this size, for an agent that there is not."""
    payload = {"agent": "nobody", "input": "x" * size}
    return json.dumps({"arcp": "1.1", "id": request_id, "type": "job.submit", "payload": payload})
