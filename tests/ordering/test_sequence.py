"""Numbers on the wire: one gap-free sequence per session, the same in every replay (§8.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext, JobError, Limits, MemoryStore
from arcp_trio.store.queue import WriteQueue
from arcp_trio.store.records import Owed
from arcp_trio.store.writes import MoveFloor, Write
from arcp_trio.testing import open_peer
from arcp_trio.testing.frames import NUMBERED, Frame
from arcp_trio.testing.pair import open_peers
from arcp_trio.testing.peer import Peer
from arcp_trio.wire.json import JsonObject
from tests import defects
from tests.inside import batch_bytes
from tests.ordering.agents import agents, places
from tests.reading import numbers
from tests.slow_stores import PausingStore, SlowKeys
from tests.stage import make_runtime


async def _receive_numbered(peer: Peer, count: int) -> list[Frame]:
    frames: list[Frame] = []
    with trio.fail_after(60):
        while len(frames) < count:
            frame = await peer.receive()
            if "event_seq" in frame:
                frames.append(frame)
    return frames


# -- what is numbered


@pytest.mark.spec("8.3-1", "1.0/8.3-1", "1.0/8.3-3")
async def test_jobs_of_one_session_share_its_sequence(autojump_clock: MockClock) -> None:
    """Events of two jobs and their results have the numbers 1 to N together."""
    async with make_runtime(agents) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        jobs = [await peer.submit("steady", 20), await peer.submit("chatty", 300)]
        frames = await _receive_numbered(peer, 322 - len(numbers(peer.seen)))
        assert numbers(peer.seen + frames) == list(range(1, 323))
        assert [len(places(peer, job["job_id"])) for job in jobs] == [20, 300]


@pytest.mark.spec("8.3-1")
async def test_sessions_count_for_themselves(autojump_clock: MockClock) -> None:
    """The sequence of each session begins at 1."""
    async with make_runtime(agents) as runtime, open_peers(runtime) as peers:
        for peer in [await peers.connect(), await peers.connect()]:
            await peer.hello()
            await peer.submit("chatty", 10)
            frames = peer.seen + await _receive_numbered(peer, 11 - len(numbers(peer.seen)))
            assert numbers(frames) == list(range(1, 12))


@pytest.mark.spec("1.0/5.1-7")
async def test_every_event_and_terminal_has_a_number_and_nothing_else(
    autojump_clock: MockClock,
) -> None:
    """Events and terminals have an `event_seq`; acceptances do not."""
    async with make_runtime(agents) as runtime, open_peer(runtime) as peer:

        @runtime.agent("failing")
        async def failing(job: JobContext) -> None:
            await job.log("about to")
            raise JobError("as told")

        await peer.hello()
        for agent in ("chatty", "failing"):
            await peer.send("job.submit", {"agent": agent, "input": 2})
        frames = [await peer.receive() for _ in range(7)]
        assert {frame["type"] for frame in frames} == NUMBERED | {"job.accepted"}
        for frame in frames:
            assert ("event_seq" in frame) == (frame["type"] in NUMBERED)


@pytest.mark.spec("6.4-7", "6.5-6")
async def test_pings_and_acks_take_no_number(autojump_clock: MockClock) -> None:
    """A hundred pings and acks between ten events take no number and are not replayed."""
    async with make_runtime(agents) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        await peer.submit("steady", 10)
        for seq in range(1, 11):
            for n in range(10):
                await peer.send("session.ping", {"nonce": f"{seq}.{n}", "sent_at": _SOME_TIME})
                await peer.send("session.ack", {"last_processed_seq": 0})
                await peer.expect("session.pong", ping_nonce=f"{seq}.{n}")
            if not numbers(peer.seen[-10:]):
                await peer.expect("job.event")
        await peer.drop()
        again = await peers.connect()
        await again.hello(resume={**peer.resume_from(), "last_event_seq": 0})
        replayed = [await again.receive() for _ in range(12)]
        assert [frame["type"] for frame in replayed] == [
            "job.accepted",
            *["job.event"] * 10,
            "job.result",
        ]


_SOME_TIME = "2026-01-01T00:00:00Z"


# -- acceptance


@pytest.mark.parametrize("limits", [Limits(), Limits(outbox_items=2, tail_frames=2)])
async def test_the_acceptance_comes_before_the_first_event(
    autojump_clock: MockClock, limits: Limits
) -> None:
    """No event comes before its job's acceptance, not even while the session is behind."""
    async with make_runtime(agents, limits=limits) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        for _ in range(20):
            await peer.send("job.submit", {"agent": "chatty", "input": 30})
        frames = await _receive_numbered(peer, 20 * 31)
        # The recorder checks that no event precedes its acceptance.
        assert len({frame["job_id"] for frame in frames}) == 20


async def test_acceptances_leave_in_the_order_of_their_submits(autojump_clock: MockClock) -> None:
    """A submit that takes a second is answered before the quick ones sent after it."""
    async with (
        make_runtime(agents, store=SlowKeys({"slow": 1})) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        slow: JsonObject = {"agent": "chatty", "input": 1, "idempotency_key": "slow"}
        quick: list[JsonObject] = [
            {"agent": name, "input": 1} for name in ("chatty", "nobody", "chatty")
        ]
        requests = [await peer.send("job.submit", submit) for submit in (slow, *quick)]
        answers: list[str] = []
        while len(answers) < len(requests):
            frame = await peer.receive()
            if frame["type"] in {"job.accepted", "session.error"}:
                answers.append(frame["payload"]["request_id"])
        assert answers == requests


# -- stored, then seen


async def _emit_while_shut() -> None:
    store = PausingStore()
    async with make_runtime(agents, store=store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.submit("steady", 3)
        await peer.expect("job.event")
        store.pause()
        try:
            with trio.move_on_after(30):
                frame = await peer.receive()
                raise AssertionError(f"seen before it was stored: {frame}")
        finally:
            store.go_on()
        assert numbers(await _receive_numbered(peer, 3)) == [2, 3, 4]


async def test_nothing_is_seen_before_it_is_stored(autojump_clock: MockClock) -> None:
    """While the store commits nothing, no numbered frame is sent."""
    await _emit_while_shut()


async def test_a_scribe_that_sends_first_and_stores_afterwards_is_found_out(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check fails for a scribe that does not wait for the commit."""
    defects.publish_before_the_commit(monkeypatch)
    with pytest.raises(AssertionError, match="seen before it was stored"):
        await _emit_while_shut()


async def test_flushed_means_also_what_is_being_committed(autojump_clock: MockClock) -> None:
    """`flushed` waits for the group being committed, even if nothing else is queued."""
    queue, committing = WriteQueue(), trio.Event()
    stored: list[Write] = []

    async def apply(writes: Sequence[Write]) -> None:
        committing.set()
        await trio.sleep(1)
        stored.extend(writes)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(queue.commit_groups, apply)
        await wait_all_tasks_blocked()
        queue.put(MoveFloor("sess_1", 1, acked=True))
        await committing.wait()
        await queue.flushed()
        assert len(stored) == 1
        nursery.cancel_scope.cancel()


# -- replay


@pytest.mark.spec("6.3-3", "1.0/6.3-2", "1.0/6.3-4", "1.0/8.3-2")
async def test_a_long_absence_is_replayed_whole(autojump_clock: MockClock) -> None:
    """25,000 events emitted while no client was connected arrive in order."""
    async with make_runtime(agents) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        job = await peer.submit("chatty", 25_000)
        await peer.drop()
        await trio.sleep(10)
        again = await peers.connect()
        await again.hello(resume=peer.resume_from())
        assert numbers(await _receive_numbered(again, 25_001)) == list(range(1, 25_002))
        assert places(again, job["job_id"]) == list(range(25_000))
        await again.submit("chatty", 5)
        assert numbers(await _receive_numbered(again, 6)) == list(range(25_002, 25_008))


async def test_a_replay_of_many_outboxes_does_not_hold_up_the_welcome(
    autojump_clock: MockClock,
) -> None:
    """A long replay does not delay the welcome."""
    limits = Limits(outbox_items=64, tail_frames=64)
    async with make_runtime(agents, limits=limits) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        await peer.submit("chatty", 640)
        await _receive_numbered(peer, 600)
        await peer.drop()
        again = await peers.connect()
        with trio.fail_after(1):
            await again.hello(resume={**peer.resume_from(), "last_event_seq": 0})
        assert numbers(await _receive_numbered(again, 641)) == list(range(1, 642))


@pytest.mark.spec("6.3-3")
async def test_two_replays_are_the_same_bytes(autojump_clock: MockClock) -> None:
    """Two resumes from one number get the same frames, byte for byte."""
    async with make_runtime(agents) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        await peer.submit("chatty", 700)
        await _receive_numbered(peer, 701)
        replays: list[list[str | bytes]] = []
        for _ in range(2):
            await peer.drop()
            resume = {**peer.resume_from(), "last_event_seq": 100}
            peer = await peers.connect()
            await peer.hello(resume=resume)
            replays.append([await peer.transport.receive() for _ in range(601)])
        assert replays[0] == replays[1]


async def test_a_client_that_does_not_read_delays_nobody_else(autojump_clock: MockClock) -> None:
    """A session gets its events as they are emitted while another's socket is stuck."""
    limits = Limits(outbox_items=8, tail_frames=8, heartbeat_seconds=1_000)
    async with make_runtime(agents, limits=limits) as runtime, open_peers(runtime) as peers:
        stuck, lively = await peers.connect(), await peers.connect()
        await stuck.hello()
        await stuck.submit("chatty", 5_000)
        await lively.hello()
        await lively.submit("steady", 20)
        for _ in range(20):
            before = trio.current_time()
            await lively.expect("job.event")
            assert trio.current_time() - before <= 1.1


# -- catching up, where it could go wrong


@pytest.mark.spec("7.4-2", "7.4-3")
async def test_job_cancelled_comes_before_the_end_also_while_behind(
    autojump_clock: MockClock,
) -> None:
    """While a session catches up, `job.cancelled` still comes before the terminal."""
    limits = Limits(outbox_items=1, tail_frames=1)
    async with make_runtime(agents, limits=limits) as runtime, open_peer(runtime) as peer:

        @runtime.agent("bulky")
        async def bulky(job: JobContext) -> None:
            for _ in range(2 * batch_bytes() // 100_000):
                await job.log("x" * 100_000)
            await trio.sleep_forever()

        await peer.hello()
        job = await peer.submit("bulky")
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        await trio.sleep(5)  # unread events have filled the connection, and the job has ended
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["final_status"] == "cancelled"
        assert "job.cancelled" in [frame["type"] for frame in peer.seen]


async def test_a_second_cancel_never_follows_the_terminal(autojump_clock: MockClock) -> None:
    """A job cancelled at any moment around its end sends nothing after its terminal."""
    async with make_runtime(agents) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        for ticks in range(25):
            job = await peer.submit("endless")
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            for _ in range(ticks):
                await trio.lowlevel.checkpoint()
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            end = await peer.until_terminal(job["job_id"])
            assert end["payload"]["final_status"] == "cancelled"


async def test_the_order_across_jobs_holds_for_those_that_speak_while_others_are_read(
    autojump_clock: MockClock,
) -> None:
    """Jobs that emit in turn while others' journals are read keep the order of emission."""
    emitted: list[str] = []

    class SlowReads(MemoryStore):
        async def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
            await trio.sleep(0.1)
            return await super().owed(cursors, entries, size)

    limits = Limits(outbox_items=1, tail_frames=1)
    async with (
        make_runtime(agents, limits=limits, store=SlowReads()) as runtime,
        open_peer(runtime) as peer,
    ):

        @runtime.agent("noted")
        async def noted(job: JobContext) -> None:
            for n in range(10):
                for _ in range(3):  # more than the outbox holds
                    emitted.append(f"{job.input} {n}")
                    await job.log(emitted[-1])
                await trio.sleep(0.013 * (job.input + 1))

        await peer.hello()
        for tag in range(20):
            await peer.send("job.submit", {"agent": "noted", "input": tag})
            await trio.sleep(0.03)
        frames = await _receive_numbered(peer, 20 * 31)
        said = [f["payload"]["body"]["message"] for f in frames if f["type"] == "job.event"]
        assert said == emitted
