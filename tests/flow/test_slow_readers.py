"""Clients that do not read: they hold bounded memory and delay no other client (§14)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import Limits
from arcp_trio.store.memory import MemoryStore
from arcp_trio.store.records import Owed
from arcp_trio.store.writes import Write
from arcp_trio.testing import Peer
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.errors import ResumeWindowExpired
from tests.flow.support import NOTHING_TOLD, QUIET, Flow, ack, open_flow, read_to
from tests.footprint import tasks
from tests.inside import awake_sessions, outbox_items, unsent_bytes

KB = 1_000
FEW = {"journal_bytes": 100 * KB, "tail_bytes": 100 * KB, "tail_frames": 50}


def journal_bytes(flow: Flow, job_id: str) -> int:
    """Return the size of what the store holds of a job."""
    assert isinstance(flow.store, MemoryStore)
    return sum(len(entry.tail) for entry in flow.store._tables.journals[job_id].entries)


async def filled(flow: Flow) -> tuple[Peer, str]:
    """Return a client that does not read, and its job, which has logged more than fits anywhere."""
    flow.tap.size = KB
    peer = await flow.welcomed(features=NOTHING_TOLD)
    job = await peer.submit("tap")
    await flow.tap.let_out(5_000)
    return peer, job["job_id"]


# -- a full journal


async def test_a_job_waits_for_its_attached_submitter(autojump_clock) -> None:
    """An agent whose journal is full waits for its submitter to read."""
    async with open_flow(**FEW) as flow:
        peer, job_id = await filled(flow)
        waiting_at = flow.tap.emitted
        assert waiting_at < 2_000
        await trio.sleep(10)
        assert flow.tap.emitted == waiting_at
        await read_to(peer, waiting_at // 2)
        await wait_all_tasks_blocked()
        assert waiting_at < flow.tap.emitted < 5_000
        await read_to(peer, 5_000)
        assert flow.tap.emitted == 5_000
        await flow.tap.shut()
        assert (await peer.until_terminal(job_id))["event_seq"] == 5_001


async def test_a_waiting_job_can_be_cancelled(autojump_clock) -> None:
    """A job that waits for a reader can be cancelled."""
    async with open_flow(**FEW) as flow:
        peer, job_id = await filled(flow)
        await peer.send("job.cancel", {"job_id": job_id})
        end = await peer.until_terminal(job_id)
        assert end["payload"]["final_status"] == "cancelled"
        assert len(flow.recorder.events(job_id)) == flow.tap.emitted + 1


@pytest.mark.spec("6.5-3", "6.3-4")
async def test_a_job_does_not_wait_for_an_absent_submitter(autojump_clock) -> None:
    """With no client attached the oldest events go, and a resume that needs them is refused."""
    async with open_flow(**FEW) as flow:
        flow.tap.size = KB
        peer = await flow.welcomed()
        job = await peer.submit("tap")
        await flow.tap.let_out(10)
        await read_to(peer, 10)
        await peer.drop()
        await wait_all_tasks_blocked()
        await flow.tap.let_out(5_000)
        assert flow.tap.emitted == 5_010
        assert journal_bytes(flow, job["job_id"]) < 3 * FEW["journal_bytes"]
        with pytest.raises(ResumeWindowExpired):
            await flow.resumed(peer, 5)
        # Every numbered event is there, but the events after the last number are gone.
        again = await flow.resumed(peer, 10)
        error = await again.expect("session.error", code="RESUME_WINDOW_EXPIRED")
        assert error["payload"]["job_id"] == job["job_id"]
        with pytest.raises(TransportClosed) as closed:
            await again.receive()
        assert closed.value.code == 1008
        assert again.seen == []
        with pytest.raises(ResumeWindowExpired):
            await flow.resumed(again, 10)


async def test_a_submitter_that_leaves_is_not_waited_for(autojump_clock) -> None:
    """A waiting job goes on as soon as its submitter disconnects."""
    async with open_flow(**FEW) as flow:
        peer, _ = await filled(flow)
        assert flow.tap.emitted < 5_000
        await peer.drop()
        await wait_all_tasks_blocked()
        assert flow.tap.emitted == 5_000


async def test_a_stuck_submitter_is_not_waited_for_for_ever(autojump_clock) -> None:
    """A write that makes no progress for two intervals ends its connection; the job goes on."""
    async with open_flow(**FEW, heartbeat_seconds=30) as flow:
        await filled(flow)
        await trio.sleep(55)
        assert flow.tap.emitted < 5_000
        await trio.sleep(40)
        assert flow.tap.emitted == 5_000


class SlowStore(MemoryStore):
    """A store whose reads and writes wait for events of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read, self.may_write = trio.Event(), trio.Event()

    async def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        """Wait, and read what a session is owed."""
        await self.may_read.wait()
        return await super().owed(cursors, entries, size)

    async def _commit(self, writes: Sequence[Write]) -> None:
        await self.may_write.wait()
        await super()._commit(writes)


async def test_a_gap_found_while_another_connection_resumes_is_told_to_that(
    autojump_clock,
) -> None:
    """A gap that is found during a resume is told to the new connection."""
    store = SlowStore()
    store.may_write.set()
    async with open_flow(store, **FEW) as flow:
        flow.tap.size = KB
        peer = await flow.welcomed()
        job_id = (await peer.submit("tap"))["job_id"]
        await peer.drop()
        await wait_all_tasks_blocked()
        await flow.tap.let_out(5_000)
        first = await flow.resumed(peer)
        await wait_all_tasks_blocked()
        store.may_write = trio.Event()
        second = await flow.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(second.hello, features=QUIET, resume=first.resume_from()))
            await wait_all_tasks_blocked()
            store.may_read.set()
            await wait_all_tasks_blocked()
            store.may_write.set()
        await second.expect("session.error", code="RESUME_WINDOW_EXPIRED", job_id=job_id)
        with pytest.raises(TransportClosed):
            await second.receive()
        await trio.sleep(10)
        assert flow.store._tables.sessions == {}


async def test_a_submitter_with_a_gap_is_not_waited_for(autojump_clock) -> None:
    """A job does not wait for a submitter that has already missed events."""
    async with open_flow(**FEW | {"journal_bytes": 500 * KB}, heartbeat_seconds=30) as flow:
        other_tap = flow.add_tap("other")
        flow.tap.size = other_tap.size = KB
        peer = await flow.welcomed()
        await peer.submit("tap")
        await flow.tap.let_out(10)
        await peer.submit("other")
        await other_tap.let_out(300)
        await read_to(peer, 310)
        await peer.drop()
        await wait_all_tasks_blocked()
        await flow.tap.let_out(5_000)
        # The client is sent the other job's events, and does not read them.
        await flow.resumed(peer, 10)
        await wait_all_tasks_blocked()
        await flow.tap.let_out(1_000)
        assert flow.tap.emitted == 6_010


async def test_another_submitter_is_not_waited_for(autojump_clock) -> None:
    """Only the first submitter delays a job; another that misses events is told."""
    async with open_flow(**FEW) as flow:
        flow.tap.size = KB
        first = await flow.welcomed(features=NOTHING_TOLD)
        second = await flow.welcomed()
        job = await first.submit("tap", idempotency_key="k")
        assert (await second.submit("tap", idempotency_key="k"))["job_id"] == job["job_id"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flow.tap.let_out, 5_000)
            await read_to(first, 5_000)
        await flow.tap.shut()
        assert (await first.until_terminal(job["job_id"]))["event_seq"] == 5_001
        error = await second.expect("session.error", code="RESUME_WINDOW_EXPIRED")
        assert error["payload"]["job_id"] == job["job_id"]
        with pytest.raises(TransportClosed):
            await second.receive()


async def test_a_job_within_its_bound_waits_for_nobody(autojump_clock) -> None:
    """Up to `journal_bytes` an agent waits for no reader."""
    async with open_flow(tail_frames=50, tail_bytes=100 * KB) as flow:
        peer, job_id = await filled(flow)
        assert flow.tap.emitted == 5_000
        await flow.tap.shut()
        assert (await peer.until_terminal(job_id))["event_seq"] == 5_001


async def test_a_job_that_is_gone_before_its_submitter_reads(autojump_clock) -> None:
    """A client is told if its job is past retention before its acceptance could be sent.

    The runtime and the other sessions are unaffected.
    """
    async with open_flow(**FEW, finished_job_seconds=0) as flow:
        peer, _ = await filled(flow)
        await peer.send("job.submit", {"agent": "echo", "input": 1})
        await trio.sleep(20)
        assert flow.runs == [1]
        job = await peer.expect("job.accepted")
        error = await peer.expect("session.error", code="RESUME_WINDOW_EXPIRED")
        assert error["payload"]["job_id"] == job["job_id"]
        other = await flow.welcomed()
        job = await other.submit("echo", 2)
        await other.until_terminal(job["job_id"])


# -- what others notice, and what memory it takes


async def test_a_reader_that_does_not_read_costs_only_itself(autojump_clock) -> None:
    """While one session's job waits, jobs of other sessions run at full speed."""
    async with open_flow(**FEW) as flow:
        other_tap = flow.add_tap("other")
        await filled(flow)
        before = trio.current_time()
        other = await flow.welcomed()
        job = await other.submit("other")
        for top in range(100, 5_001, 100):
            await other_tap.let_out(100)
            await read_to(other, top)
        await other_tap.shut()
        await other.until_terminal(job["job_id"])
        assert trio.current_time() - before < 1
        assert flow.tap.emitted < 5_000


async def test_a_second_submitter_that_does_not_read_delays_nobody(autojump_clock) -> None:
    """The first submitter gets every event at once, whatever other sessions watch the job."""
    async with open_flow(tail_frames=50, tail_bytes=100 * KB) as flow:
        flow.tap.size = KB
        first, second = await flow.welcomed(), await flow.welcomed()
        await first.submit("tap", idempotency_key="k")
        await second.submit("tap", idempotency_key="k")
        before = trio.current_time()
        for top in range(100, 5_001, 100):
            await flow.tap.let_out(100)
            await read_to(first, top)
        assert trio.current_time() - before < 1
        assert len(await read_to(second, 5_000)) == 5_000


@pytest.mark.spec("1.0/14-4")
async def test_what_a_session_holds_is_bounded(autojump_clock) -> None:
    """An unread session holds a bounded number of unsent bytes and hints."""
    async with open_flow(**FEW) as flow:
        peer, job_id = await filled(flow)
        batch = 2 * 1024 * KB
        assert unsent_bytes(flow.runtime, peer.session_id) <= FEW["tail_bytes"] + batch
        assert outbox_items(flow.runtime, peer.session_id) <= Limits().outbox_items
        assert journal_bytes(flow, job_id) <= 3 * FEW["journal_bytes"]


async def test_what_an_absent_session_holds_is_a_cursor(autojump_clock) -> None:
    """A parked session holds nothing of what its job logs."""
    async with open_flow() as flow:
        peer = await flow.welcomed()
        await peer.submit("tap")
        await peer.drop()
        await wait_all_tasks_blocked()
        await flow.tap.let_out(20_000)
        assert awake_sessions(flow.runtime) == set()
        (log,) = flow.store._tables.sessions.values()
        assert log.row.top == 0
        assert len(log.items) == 1


async def test_a_throttled_session_ends_with_its_socket(autojump_clock) -> None:
    """Within a second after its socket's end, a waiting session has no task left."""
    async with open_flow(**FEW) as flow:
        peer = await flow.welcomed()
        await wait_all_tasks_blocked()
        await peer.drop()
        await trio.sleep(1)
        before = tasks()
        peer = await flow.welcomed()
        flow.tap.size = KB
        await peer.submit("tap")
        await flow.tap.let_out(1)
        await read_to(peer, 1)
        await ack(peer, 1)
        await flow.tap.let_out(5_000)
        await peer.drop()
        await trio.sleep(1)
        assert awake_sessions(flow.runtime) == set()
        job_tasks = 2
        assert tasks() <= before + job_tasks


@pytest.mark.parametrize(
    "limit", ["tail_frames", "tail_bytes", "tail_bytes_total", "unacked_frames", "journal_bytes"]
)
def test_a_window_of_nothing_is_refused(limit: str) -> None:
    """A bound of zero would block for ever, so it cannot be configured."""
    with pytest.raises(ValueError, match=limit):
        Limits(**{limit: 0})
