"""The defects that the design rules out, each with a variant of the runtime that has it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Event, Limits
from arcp_trio.client import delivery
from arcp_trio.client.delivery import Delivery
from arcp_trio.testing import open_pair, open_peer
from arcp_trio.testing.pair import PeerFactory, open_peers
from arcp_trio.testing.peer import Peer
from tests import defects
from tests.ordering.agents import agents, places
from tests.stage import make_runtime

EVENTS = 10_000

# -- one sequence for all that emit


async def _talk_at_once() -> None:
    """Run two jobs, one that times out, and back-pressure notices in one session."""
    async with make_runtime(agents) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.send("session.ack", {"last_processed_seq": 0})
        jobs = [await peer.submit("brisk", EVENTS // 2) for _ in range(2)]
        watched = await peer.submit("endless", max_runtime_sec=1)
        ids = [job["job_id"] for job in (*jobs, watched)]
        while any(peer.recorder.terminal(job_id) is None for job_id in ids):
            # The recorder compares each number with the one that is due.
            seq = (await peer.receive()).get("event_seq", 1)
            if seq % 1_500 == 0:
                await peer.send("session.ack", {"last_processed_seq": seq})
        for job in jobs:
            assert places(peer, job["job_id"]) == list(range(EVENTS // 2))
        end = peer.recorder.terminal(watched["job_id"])
        assert end is not None
        assert end["payload"]["final_status"] == "timed_out"
        events = [event for job_id in ids for event in peer.recorder.events(job_id)]
        pressed = [event for event in events if event["payload"]["kind"] == "status"]
        assert len(pressed) >= 3


@pytest.mark.spec("8.3-1", "1.0/8.3-1")
async def test_jobs_a_watchdog_and_back_pressure_share_one_sequence(
    autojump_clock: MockClock,
) -> None:
    """Ten thousand events, a timeout and notices have the numbers 1 to N on the wire."""
    await _talk_at_once()


async def test_frames_queued_by_another_task_than_numbered_them_are_found_out(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check fails if tasks can run between taking numbers and queueing frames."""
    defects.publish_in_other_tasks(monkeypatch)
    with pytest.raises(AssertionError, match=r"event_seq \d+ where \d+ is due"):
        await _talk_at_once()


# -- what ends a connection ends no job


async def _fall_silent(peer: Peer) -> None:
    peer.answer_pings = False
    await peer.expect("session.error", code="HEARTBEAT_LOST")


async def _close(peer: Peer) -> None:
    await peer.send("session.close")
    await peer.expect("session.closed")


Leave = Callable[[Peer], Awaitable[None]]
_IMPATIENT = Limits(heartbeat_seconds=10)
ways_to_leave = pytest.mark.parametrize("leave", [_fall_silent, Peer.drop, _close])


async def _leave_and_return(peers: PeerFactory, leave: Leave) -> None:
    peer = await peers.connect()
    await peer.hello()
    job = await peer.submit("steady", 80)
    for _ in range(5):
        await peer.expect("job.event")
    await leave(peer)
    await trio.sleep(40)
    again = await peers.connect()
    await again.hello(resume=peer.resume_from())
    end = await again.until_terminal(job["job_id"])
    assert end["payload"]["final_status"] == "success"
    assert places(again, job["job_id"]) == list(range(80))


@pytest.mark.spec("6.4-5", "6.7-2")
@ways_to_leave
async def test_a_job_runs_on_to_success_and_is_resumed(
    autojump_clock: MockClock, leave: Leave
) -> None:
    """After silence, a reset or a close the job runs on, and a resume misses nothing."""
    async with make_runtime(agents, limits=_IMPATIENT) as runtime, open_peers(runtime) as peers:
        await _leave_and_return(peers, leave)


@ways_to_leave
async def test_a_session_that_takes_its_jobs_along_is_found_out(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, leave: Leave
) -> None:
    """The check fails if a lost connection ends the jobs."""
    defects.end_jobs_with_their_connection(monkeypatch)
    async with make_runtime(agents, limits=_IMPATIENT) as runtime, open_peers(runtime) as peers:
        with pytest.raises(AssertionError, match="assert 'cancelled' == 'success'"):
            await _leave_and_return(peers, leave)


# -- events are handled one at a time, in order, and before the result

FALLING_SECONDS = (0.150, 0.120, 0.090, 0.060, 0.030)
"""The handler's delays for five events: each event could overtake the one before."""
IN_ORDER = [f"{what} {n}" for n in range(5) for what in ("begin", "end")]


async def _five_events(*, submitting: bool) -> None:
    """Feed five events to a handler, which may submit a job for each and await its result."""
    handled: list[str] = []

    async def on_event(event: Event) -> None:
        number = int(event.body["message"])
        handled.append(f"begin {number}")
        await trio.sleep(FALLING_SECONDS[number])
        if submitting:
            inner = await client.submit("brisk", 0)
            assert await inner.result() == 0
        handled.append(f"end {number}")

    async with make_runtime(agents) as runtime, open_pair(runtime, on_event=on_event) as client:
        job = await client.submit("brisk", 5)
        with trio.fail_after(60):
            await job.result()
        assert handled == IN_ORDER


with_handlers_that = pytest.mark.parametrize("submitting", [False, True], ids=["wait", "submit"])


@with_handlers_that
async def test_five_events_are_handled_in_order(
    autojump_clock: MockClock, *, submitting: bool
) -> None:
    """A handler with falling delays gets events one at a time, in order, before the result."""
    await _five_events(submitting=submitting)


@with_handlers_that
async def test_a_task_for_each_event_is_found_out(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, *, submitting: bool
) -> None:
    """The check fails for a client that handles each event in a task of its own."""

    async def run(self: Delivery) -> None:
        delivery._in_handler.set(True)
        assert self._handler is not None
        async with trio.open_nursery() as nursery:
            while True:
                while not self._items:
                    await self._filled.park()
                item = self._items.popleft()
                if isinstance(item, trio.Event):
                    item.set()
                else:
                    nursery.start_soon(self._handler, item[0])

    monkeypatch.setattr(Delivery, "run", run)
    with pytest.raises(AssertionError):
        await _five_events(submitting=submitting)


async def test_answers_that_only_come_in_turn_are_found_out(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check fails if a handler's own calls wait for the events that the handler delays.

    A client that awaits its handlers in the task that reads behaves like that.
    """

    async def wait(self: delivery.Reply[object]) -> object:
        await self.in_turn.wait()
        return self.get()

    monkeypatch.setattr(delivery.Reply, "wait", wait)
    with pytest.raises(trio.TooSlowError):
        await _five_events(submitting=True)
