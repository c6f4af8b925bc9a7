"""Acknowledgements: what they free, and who is told of back-pressure (§6.5)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.testing import Peer
from arcp_trio.wire.errors import ResumeWindowExpired
from arcp_trio.wire.json import Json
from tests.flow.support import Flow, ack, open_flow, read_to, told


@pytest.fixture
async def peer(flow: Flow) -> Peer:
    """A client with a running tap."""
    connected = await flow.welcomed()
    await connected.submit("tap")
    return connected


# -- what it frees


@pytest.mark.spec("6.5-1", "6.5-2", "6.3-4")
async def test_an_acknowledgement_frees(flow: Flow, peer: Peer, autojump_clock) -> None:
    """A resume from before the acknowledged number is refused; one from it succeeds."""
    await flow.tap.let_out(10)
    await read_to(peer, 10)
    await ack(peer, 6)
    await peer.drop()
    for after in (0, 1, 5):
        with pytest.raises(ResumeWindowExpired):
            await flow.resumed(peer, after)
    again = await flow.resumed(peer, 6)
    assert [frame["event_seq"] for frame in await read_to(again, 10)] == [7, 8, 9, 10]


@pytest.mark.spec("6.5-3")
async def test_time_alone_frees_nothing(autojump_clock) -> None:
    """What was not acknowledged can be replayed long after the length of the window."""
    async with open_flow(resume_window_seconds=10) as flow:
        peer = await flow.welcomed()
        await peer.submit("tap")
        await flow.tap.let_out(10)
        await read_to(peer, 10)
        await trio.sleep(1_000)
        await peer.drop()
        again = await flow.resumed(peer, 0)
        assert len(await read_to(again, 10)) == 10


@pytest.mark.spec("6.5-7", "6.3-3")
async def test_an_acknowledgement_only_advises(flow: Flow, peer: Peer, autojump_clock) -> None:
    """A resume counts from its own number, not from the acknowledged one."""
    await flow.tap.let_out(10)
    await read_to(peer, 10)
    await ack(peer, 3)
    await peer.drop()
    again = await flow.resumed(peer, 8)
    assert [frame["event_seq"] for frame in await read_to(again, 10)] == [9, 10]


async def test_an_old_acknowledgement_brings_nothing_back(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """An acknowledgement lower than one before changes nothing."""
    await flow.tap.let_out(10)
    await read_to(peer, 10)
    await ack(peer, 6)
    await ack(peer, 2)
    await peer.drop()
    with pytest.raises(ResumeWindowExpired):
        await flow.resumed(peer, 4)
    await flow.resumed(peer, 6)


async def test_what_was_not_sent_cannot_be_acknowledged(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """An acknowledgement beyond the last sent number counts as one of that number."""
    await flow.tap.let_out(10)
    await read_to(peer, 10)
    await ack(peer, 10**12)
    await flow.tap.let_out(5)
    frames = await read_to(peer, 15)
    assert [frame["event_seq"] for frame in frames] == [11, 12, 13, 14, 15]
    await peer.drop()
    again = await flow.resumed(peer, 10)
    assert len(await read_to(again, 15)) == 5


async def test_an_acknowledgement_during_a_replay_frees_nothing_unsent(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """During a replay, only what has been sent can be acknowledged."""
    flow.tap.size = 1_000
    await flow.tap.let_out(2_000)
    await read_to(peer, 2_000)
    await peer.drop()
    again = await flow.resumed(peer, 0)
    await ack(again, 2_000)
    assert len(await read_to(again, 2_000)) == 2_000


@pytest.mark.parametrize("value", [-1, 1.5, "7", None, True, 2**63, [7], {}])
@pytest.mark.spec("12-5")
async def test_what_is_no_number_is_refused(
    flow: Flow, peer: Peer, autojump_clock, value: Json
) -> None:
    """A malformed acknowledgement is refused and frees nothing, and the stream goes on."""
    await flow.tap.let_out(10)
    await read_to(peer, 10)
    await ack(peer, value)
    await peer.expect("session.error", code="INVALID_REQUEST")
    await flow.tap.let_out(5)
    await read_to(peer, 15)
    await peer.drop()
    again = await flow.resumed(peer, 0)
    await read_to(again, 15)


@pytest.mark.spec("6.2-4")
async def test_without_the_feature_an_acknowledgement_is_nothing(
    flow: Flow, autojump_clock
) -> None:
    """Without the feature `ack` an acknowledgement frees nothing and gets no error."""
    peer = await flow.connect()
    await peer.hello(features=())
    await peer.submit("tap")
    await flow.tap.let_out(10)
    await read_to(peer, 10)
    await ack(peer, 10)
    await flow.tap.let_out(1)
    await read_to(peer, 11)
    assert [frame["type"] for frame in peer.seen] == []
    await peer.drop()
    again = await flow.resumed(peer, 0)
    await read_to(again, 11)


@pytest.mark.spec("6.5-6")
async def test_control_frames_take_no_numbers(flow: Flow, peer: Peer, autojump_clock) -> None:
    """Pings and acknowledgements between events are neither numbered nor replayed."""
    replies = 0
    for seq in range(1, 11):
        for _ in range(10):
            await peer.send("session.ping", {"nonce": "n", "sent_at": "2030-01-01T00:00:00Z"})
            await peer.send("session.ack", {"last_processed_seq": 0})
        await flow.tap.let_out(1)
        await peer.expect("job.event", event_seq=seq)
    await wait_all_tasks_blocked()
    replies = sum(frame["type"] == "session.pong" for frame in peer.seen)
    assert replies == 100
    await peer.drop()
    again = await flow.resumed(peer, 0)
    await again.expect("job.event", event_seq=10)
    kinds = [frame["type"] for frame in again.seen]
    assert kinds == ["job.accepted"] + ["job.event"] * 9


# -- back-pressure


@pytest.mark.spec("6.5-4")
async def test_a_client_that_falls_behind_is_told_once(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """A client whose lag is large gets one notice, as a numbered event of a running job."""
    await flow.tap.let_out(1)
    await read_to(peer, 1)
    await ack(peer, 1)
    await flow.tap.let_out(5_000)
    frames = await read_to(peer, 5_002)
    (notice,) = told(frames)
    assert 1_000 < notice["event_seq"] < 3_500
    assert notice["job_id"] == frames[0]["job_id"]


@pytest.mark.spec("6.5-4")
@pytest.mark.parametrize("limits", [{}, {"outbox_items": 1}, {"outbox_items": 1, "tail_frames": 1}])
async def test_the_next_crossing_is_told_again(autojump_clock, limits: dict[str, int]) -> None:
    """A client that caught up and falls behind again gets another notice."""
    async with open_flow(**limits) as flow:
        peer = await flow.welcomed()
        await peer.submit("tap")
        await flow.tap.let_out(1)
        top = 1
        await read_to(peer, top)
        await ack(peer, top)
        for _ in range(3):
            await flow.tap.let_out(5_000)
            top += 5_001
            assert len(told(await read_to(peer, top))) == 1
            await ack(peer, top)


@pytest.mark.spec("6.5-4")
async def test_a_client_that_has_not_acknowledged_yet_is_told(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """A client that could acknowledge and has not is told once that it falls behind."""
    await flow.tap.let_out(5_000)
    assert len(told(await read_to(peer, 5_001))) == 1


async def test_a_client_that_cannot_acknowledge_is_not_told(flow: Flow, autojump_clock) -> None:
    """A client that did not negotiate `ack` gets no notice."""
    peer = await flow.welcomed(features=())
    await peer.submit("tap")
    await flow.tap.let_out(5_000)
    assert told(await read_to(peer, 5_000)) == []


async def test_a_client_that_keeps_up_is_not_told(autojump_clock) -> None:
    """A client that acknowledges all it gets is not behind, however large the batches are."""
    async with open_flow(outbox_items=1, tail_frames=1) as flow:
        flow.tap.size = 200
        peer = await flow.welcomed()
        await peer.submit("tap")
        await flow.tap.let_out(1)
        await read_to(peer, 1)
        await ack(peer, 1)
        await peer.drop()
        await flow.tap.let_out(10_000)
        again = await flow.resumed(peer)
        notices = 0
        for seq in range(51, 10_002, 50):
            notices += len(told(await read_to(again, seq)))
            await ack(again, seq)
        assert notices == 0


async def test_no_notice_on_a_job_that_has_ended(flow: Flow, autojump_clock) -> None:
    """A notice needs a running job: nothing follows a terminal."""
    peer = await flow.welcomed()
    job = await peer.submit("tap")
    await flow.tap.let_out(1)
    await read_to(peer, 1)
    await ack(peer, 1)
    await flow.tap.let_out(900)
    await read_to(peer, 901)
    await flow.tap.let_out(90)
    await flow.tap.shut()
    await peer.until_terminal(job["job_id"])
    other = await peer.submit("echo", "after")
    await peer.until_terminal(other["job_id"])
    assert told(peer.seen) == []


async def test_a_notice_does_not_stop_the_stream(flow: Flow, autojump_clock) -> None:
    """Acknowledgements are taken while all buffers are full, and the stream recovers."""
    peer = await flow.welcomed()
    job = await peer.submit("tap")
    await flow.tap.let_out(1)
    await read_to(peer, 1)
    await ack(peer, 1)
    await flow.tap.let_out(30_000)
    for seq in range(1, 200):
        await peer.send("session.ack", {"last_processed_seq": seq})
    await flow.tap.shut()
    end = await peer.until_terminal(job["job_id"])
    assert end["event_seq"] == 30_001 + len(told(peer.seen)) + 1
    assert len(told(peer.seen)) >= 1
    assert flow.tap.emitted == 30_001


# -- bounds


@pytest.mark.spec("6.5-3", "6.3-4", "1.0/14-4")
async def test_unacknowledged_frames_are_bounded(autojump_clock) -> None:
    """Past `unacked_frames` the oldest numbers go, and a resume from them is refused."""
    async with open_flow(unacked_frames=100) as flow:
        peer = await flow.welcomed()
        await peer.submit("tap")
        await flow.tap.let_out(1_000)
        await read_to(peer, 1_000)
        await peer.drop()
        for after in (0, 500, 899):
            with pytest.raises(ResumeWindowExpired):
                await flow.resumed(peer, after)
        again = await flow.resumed(peer, 900)
        assert len(await read_to(again, 1_000)) == 100


async def test_the_bound_counts_what_is_not_acknowledged(autojump_clock) -> None:
    """A client that acknowledges can resume from its last acknowledgement."""
    async with open_flow(unacked_frames=100) as flow:
        peer = await flow.welcomed()
        await peer.submit("tap")
        top = 0
        for _ in range(10):
            await flow.tap.let_out(90)
            top += 90
            await read_to(peer, top)
            await ack(peer, top - 5)
        await peer.drop()
        await flow.resumed(peer, top - 5)


async def test_a_replay_that_is_overtaken_ends(autojump_clock) -> None:
    """A replay whose numbers are given up meanwhile ends with an error."""
    async with open_flow(unacked_frames=1_000) as flow:
        flow.tap.size = 1_000
        peer = await flow.welcomed()
        job = await peer.submit("tap")
        await flow.tap.let_out(1_000)
        await read_to(peer, 1_000)
        await peer.drop()
        again = await flow.resumed(peer, 0)
        await flow.tap.let_out(2_000)
        error = await again.expect("session.error", code="RESUME_WINDOW_EXPIRED")
        assert not error["payload"]["retryable"]
        assert len(flow.recorder.events(job["job_id"])) == 1_000
