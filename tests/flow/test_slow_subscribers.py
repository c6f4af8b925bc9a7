"""Many subscribers that do not read: each holds a cursor, and delays no other session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import MemoryStore
from arcp_trio.store.writes import AppendLog, Write
from arcp_trio.testing import Peer
from tests.flow.support import QUIET, Flow, open_flow, read_to
from tests.inside import (
    awake_sessions,
    batch_bytes,
    set_batch_bytes,
    unsent_bytes,
    watching_sessions,
)
from tests.metrics import scrape

KB = 1_000
FEATURES = (*QUIET, "subscribe")
MUTE = 100


class CountingStore(MemoryStore):
    """A store that counts the log rows of each session."""

    def __init__(self, *, journal_bytes: int = 64 * 1024 * 1024) -> None:
        super().__init__(journal_bytes=journal_bytes)
        self.rows = Counter[str]()

    async def _commit(self, writes: Sequence[Write]) -> None:
        self.rows.update(write.session_id for write in writes if isinstance(write, AppendLog))
        await super()._commit(writes)


class Steps(trio.abc.Instrument):
    """An instrument that counts how often any task runs."""

    def __init__(self) -> None:
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step."""
        self.count += 1


@contextmanager
def counted() -> Iterator[Steps]:
    """Count the steps of all tasks within the block."""
    steps = Steps()
    trio.lowlevel.add_instrument(steps)
    try:
        yield steps
    finally:
        trio.lowlevel.remove_instrument(steps)


async def subscriber(flow: Flow, job_id: str) -> Peer:
    """Return a client with a session of its own that subscribes and reads up to the answer."""
    peer = await flow.connect()
    await peer.hello(features=FEATURES)
    await peer.send("job.subscribe", {"job_id": job_id})
    await peer.expect("job.subscribed")
    return peer


async def relay(flow: Flow, peers: Sequence[Peer], start: int, stop: int) -> None:
    """Have the job log lines `start` to `stop`, while these clients read them as they come."""
    for top in range(start + 100, stop + 1, 100):
        await flow.tap.let_out(100)
        for peer in peers:
            await read_to(peer, top)


def held(flow: Flow, peer: Peer) -> int:
    """Return how many bytes wait to be sent to a client."""
    return unsent_bytes(flow.runtime, peer.session_id)


def held_in_all(flow: Flow) -> float:
    """Return how many bytes wait to be sent to all clients."""
    return scrape(flow.runtime)("tail_bytes")


# -- what others notice


async def test_a_crowd_that_does_not_read_costs_the_others_nothing(autojump_clock) -> None:
    """Beside a hundred silent subscribers, owner and reader are served in the same steps.

    Once the unsent frames of those who do not read are at their bound, no row is written for them.
    """
    store = CountingStore()
    bounds = {"tail_frames": 50, "tail_bytes": 100 * KB, "sessions_per_principal": MUTE + 2}
    async with open_flow(store, **bounds) as flow:
        flow.tap.size = KB
        owner = await flow.welcomed()
        job_id = (await owner.submit("tap"))["job_id"]
        reader = await subscriber(flow, job_id)
        await relay(flow, [owner, reader], 0, 1_000)
        with counted() as alone:
            await relay(flow, [owner, reader], 1_000, 3_000)

        crowd = [await subscriber(flow, job_id) for _ in range(MUTE)]
        await relay(flow, [owner, reader], 3_000, 4_000)
        before, rows = trio.current_time(), store.rows.copy()
        with counted() as beside:
            await relay(flow, [owner, reader], 4_000, 6_000)
        assert trio.current_time() == before
        assert beside.count < 1.1 * alone.count
        written = store.rows - rows
        assert set(written) == {owner.session_id, reader.session_id}
        most = bounds["tail_bytes"] + 2 * batch_bytes()
        assert all(held(flow, peer) <= most for peer in crowd)

        # Nothing is lost for them: the journal has it.
        assert len(await read_to(crowd[0], 3_000)) == 3_000


async def test_they_may_come_and_go_while_a_job_speaks(autojump_clock) -> None:
    """Subscribers that disconnect leave no watch and no unsent bytes."""
    async with open_flow() as flow:
        owner = await flow.welcomed()
        job_id = (await owner.submit("tap"))["job_id"]
        for round_ in range(5):
            crowd = [await subscriber(flow, job_id) for _ in range(10)]
            await relay(flow, [owner], 100 * round_, 100 * round_ + 100)
            assert len(watching_sessions(flow.runtime, job_id)) == 1 + len(crowd)
            for peer in crowd:
                await peer.drop()
            await wait_all_tasks_blocked()
            assert watching_sessions(flow.runtime, job_id) == {owner.session_id}
            assert held_in_all(flow) == 0


# -- the bound on all unsent frames


async def test_all_tails_together_are_bounded(autojump_clock, monkeypatch) -> None:
    """Past `tail_bytes_total` clients that do not read get no more; those that read get all."""
    batch = 20 * KB
    set_batch_bytes(monkeypatch, batch)
    async with open_flow(tail_bytes_total=500 * KB) as flow:
        flow.tap.size = KB
        owner = await flow.welcomed()
        job_id = (await owner.submit("tap"))["job_id"]
        reader = await subscriber(flow, job_id)
        crowd = [await subscriber(flow, job_id) for _ in range(10)]
        await relay(flow, [owner, reader], 0, 1_000)
        full = held_in_all(flow)
        assert 500 * KB <= full <= 500 * KB + len(crowd) * 4 * batch
        assert full == sum(held(flow, peer) for peer in (owner, reader, *crowd))
        await relay(flow, [owner, reader], 1_000, 5_000)
        assert held_in_all(flow) == full


async def test_room_that_one_leaves_is_for_the_others(autojump_clock, monkeypatch) -> None:
    """When a full client disconnects, sessions that waited for the total go on."""
    set_batch_bytes(monkeypatch, 20 * KB)
    async with open_flow(tail_bytes_total=500 * KB) as flow:
        flow.tap.size = KB
        owner = await flow.welcomed()
        job_id = (await owner.submit("tap"))["job_id"]
        first = await subscriber(flow, job_id)
        await relay(flow, [owner], 0, 1_000)
        second = await subscriber(flow, job_id)
        await relay(flow, [owner], 1_000, 2_000)
        before = held(flow, second)
        assert held(flow, first) > 500 * KB > before
        await first.drop()
        await wait_all_tasks_blocked()
        assert held(flow, second) > max(before, 500 * KB)
        await second.drop()
        await wait_all_tasks_blocked()
        assert held_in_all(flow) == 0


# -- an absent subscriber


@pytest.mark.parametrize(
    "events", [pytest.param(100_000, id="100k"), pytest.param(1_000_000, marks=pytest.mark.soak)]
)
async def test_an_absent_subscriber_costs_a_cursor(events: int, autojump_clock) -> None:
    """A parked session that observes a job costs nothing, however much the job logs."""
    store = CountingStore(journal_bytes=1024 * 1024 * 1024)
    async with open_flow(store) as flow:
        owner = await flow.welcomed()
        job_id = (await owner.submit("tap"))["job_id"]
        peer = await subscriber(flow, job_id)
        await owner.drop()
        await peer.drop()
        await wait_all_tasks_blocked()
        assert awake_sessions(flow.runtime) == set()
        assert peer.session_id is not None
        kept, rows = repr(store._tables.sessions[peer.session_id]), store.rows.copy()
        assert len(kept) < KB

        await flow.tap.let_out(events)
        assert flow.tap.emitted == events
        assert repr(store._tables.sessions[peer.session_id]) == kept
        assert store.rows == rows
        assert watching_sessions(flow.runtime, job_id) == set()
        assert held_in_all(flow) == 0

        again = await flow.connect()
        await again.hello(features=FEATURES, resume=peer.resume_from())
        frames = await read_to(again, KB)
        assert [frame["event_seq"] for frame in frames] == list(range(1, KB + 1))
