"""Requests of a client wait for their turn within a bound in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.front.serve import serve_stream
from arcp_trio.testing import Peer
from arcp_trio.transport import memory_streams
from tests.inside import Inbox, inbox
from tests.protocol.support import text_of
from tests.sessions.support import Stage, open_stage
from tests.stage import hello_payload
from tests.transport.peers import PING, PONG, TEXT, RawPeer

KB = 1_000
FEW = [30 * KB] * 100
LARGE = [300 * KB, *[1 * KB] * 100, 300 * KB]


def hold_up(stage: Stage, name: str) -> trio.Event:
    """Make this lookup in the store wait for the event that is returned."""
    go_on = trio.Event()
    look = getattr(stage.store, name)

    async def slow_look(*what: object) -> object:
        await go_on.wait()
        return await look(*what)

    setattr(stage.store, name, slow_look)
    return go_on


async def submit(peer: Peer, sizes: Sequence[int], letter: str = "x") -> None:
    """Submit an input of each size in bytes, under keys of their own."""
    for n, size in enumerate(sizes):
        text = letter * (size // len(letter.encode()))
        wanted = {"agent": "nobody", "input": text, "idempotency_key": f"key {n}"}
        await peer.send("job.submit", wanted)


@pytest.mark.parametrize("sizes", [FEW, LARGE])
async def test_large_commands_wait_before_they_are_read(
    autojump_clock: MockClock, sizes: list[int]
) -> None:
    """Past `inbox_bytes` requests wait on the client's side, and all are answered in the end."""
    async with open_stage(inbox_bytes=100 * KB) as stage, trio.open_nursery() as nursery:
        peer = await stage.welcomed()
        go_on = hold_up(stage, "owner")
        await peer.send("job.cancel", {"job_id": "job_unknown"})
        nursery.start_soon(submit, peer, sizes)
        await trio.sleep(20)  # the loop rests after each large frame
        await wait_all_tasks_blocked()
        found = inbox(stage.runtime, peer.session_id)
        assert found.waiting == (3 if sizes is FEW else 0)
        assert 0 < found.held_bytes <= 100 * KB
        go_on.set()
        await peer.expect("session.error", code="JOB_NOT_FOUND")
        for _ in sizes:
            await peer.expect("session.error", code="AGENT_NOT_AVAILABLE")
        assert inbox(stage.runtime, peer.session_id) == Inbox(waiting=0, held_bytes=0)


async def test_bytes_are_counted_rather_than_characters(autojump_clock: MockClock) -> None:
    """Commands in a script of three bytes a character count by their bytes."""
    async with open_stage(inbox_bytes=100 * KB) as stage, trio.open_nursery() as nursery:
        peer = await stage.welcomed()
        go_on = hold_up(stage, "owner")
        await peer.send("job.cancel", {"job_id": "job_unknown"})
        nursery.start_soon(submit, peer, FEW, "€")
        await wait_all_tasks_blocked()
        found = inbox(stage.runtime, peer.session_id)
        assert found.waiting == 3
        assert 90 * KB < found.held_bytes <= 100 * KB
        go_on.set()
        await peer.expect("session.error", code="JOB_NOT_FOUND")
        for _ in FEW:
            await peer.expect("session.error", code="AGENT_NOT_AVAILABLE")


@pytest.mark.parametrize("sizes", [FEW, LARGE])
async def test_submits_that_take_time_count_until_they_are_answered(
    autojump_clock: MockClock, sizes: list[int]
) -> None:
    """Submits count until they are answered; one above the bound is taken alone."""
    async with open_stage(inbox_bytes=100 * KB) as stage, trio.open_nursery() as nursery:
        peer = await stage.welcomed()
        go_on = hold_up(stage, "key")
        nursery.start_soon(submit, peer, sizes)
        await trio.sleep(20)  # the loop rests after each large frame
        await wait_all_tasks_blocked()
        held = inbox(stage.runtime, peer.session_id).held_bytes
        assert 90 * KB < held <= max(100 * KB, sizes[0] + KB)
        go_on.set()
        for _ in sizes:
            await peer.expect("session.error", code="AGENT_NOT_AVAILABLE")
        assert inbox(stage.runtime, peer.session_id) == Inbox(waiting=0, held_bytes=0)


async def test_pings_of_the_websocket_do_not_wait_for_room(autojump_clock: MockClock) -> None:
    """A WebSocket's ping is answered while the frame before it waits for room in the inbox."""
    async with open_stage(inbox_items=1) as stage:
        go_on = hold_up(stage, "owner")
        near, far = memory_streams()
        serve = partial(serve_stream, stage.runtime, near, "raw", private=True)
        stage.runtime.start_connection(serve, "raw")
        peer = RawPeer(far)
        await peer.shake_hands()
        await peer.send(TEXT, text_of("session.hello", hello_payload()).encode())
        assert (await peer.receive())[0] == TEXT
        for n in range(5):
            cancel = text_of("job.cancel", {"job_id": f"job_{n}"})
            await peer.send(TEXT, cancel.encode())
        await wait_all_tasks_blocked()
        await peer.send(PING, b"anybody there?")
        assert await peer.receive() == (PONG, b"anybody there?")
        go_on.set()
        for _ in range(5):
            assert (await peer.receive())[0] == TEXT
