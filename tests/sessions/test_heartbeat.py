"""Heartbeats, and what happens to silent clients (§6.4)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import TransportClosed
from tests.footprint import tasks
from tests.reading import close_code, lines
from tests.sessions.support import open_stage


async def listen(peer: Peer, seconds: float) -> list[tuple[float, Frame]]:
    """Receive for this long; return the frames with the times at which they came."""
    heard: list[tuple[float, Frame]] = []
    started = trio.current_time()
    with trio.move_on_after(seconds):
        while True:
            frame = await peer.receive()
            heard.append((trio.current_time() - started, frame))
    return heard


# --- pings


@pytest.mark.spec("6.4-1", "6.4-2", "2.2-1", "6.4-7")
async def test_an_idle_client_is_pinged_every_interval(autojump_clock: MockClock) -> None:
    """An idle client gets a ping with a new nonce every interval, and is not lost."""
    async with open_stage(heartbeat_seconds=5) as stage:
        peer = await stage.welcomed()
        pings: list[Frame] = []
        peer.answer_pings = False
        for _ in range(20):
            ping = await peer.expect("session.ping")
            pings.append(ping["payload"])
            await peer.send("session.pong", {"ping_nonce": ping["payload"]["nonce"]})
        assert trio.current_time() == pytest.approx(100, abs=1)
        assert len({ping["nonce"] for ping in pings}) == 20
        assert all(ping["sent_at"].endswith("Z") for ping in pings)


@pytest.mark.spec("6.4-1")
@pytest.mark.parametrize("kind", ["session.ack", "session.ping", "session.no_such_thing"])
async def test_a_chatty_client_is_pinged_all_the_same(kind: str, autojump_clock: MockClock) -> None:
    """Incoming frames do not put off a ping."""
    async with open_stage(heartbeat_seconds=5) as stage:
        peer = await stage.welcomed(answer_pings=False)
        pings = 0
        for _ in range(499):
            await peer.send(kind, {"last_processed_seq": 0, "nonce": "n"})
            frames = await listen(peer, 0.1)
            pings += [frame["type"] for _, frame in frames].count("session.ping")
        assert pings == 9


async def test_a_busy_stream_does_not_put_off_the_ping(autojump_clock: MockClock) -> None:
    """A client that only answers pings stays connected through any number of events."""
    async with open_stage(heartbeat_seconds=5) as stage:

        @stage.runtime.agent("ticker")
        async def ticker(job: JobContext) -> None:
            for n in range(600):
                await job.log(str(n))
                await trio.sleep(0.1)

        peer = await stage.welcomed()
        job = (await peer.submit("ticker"))["job_id"]
        peer.patience = 100
        await peer.until_terminal(job)
        assert len(stage.recorder.events(job)) == 600


@pytest.mark.spec("6.4-3")
async def test_pongs_name_their_pings(autojump_clock: MockClock) -> None:
    """A hundred pings at once are answered in order, each with its nonce."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        nonces = [f"n{n}" for n in range(100)]
        for nonce in nonces:
            await peer.send("session.ping", {"nonce": nonce, "sent_at": "2026-01-01T00:00:00Z"})
        pongs = [await peer.receive() for _ in nonces]
        assert [pong["payload"]["ping_nonce"] for pong in pongs] == nonces
        assert all(pong["payload"]["received_at"].endswith("Z") for pong in pongs)


async def test_pongs_that_nobody_reads_are_bounded(autojump_clock: MockClock) -> None:
    """A client that pings without reading has to wait, and misses no pong later."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        sent: list[str] = []

        async def ping_away() -> None:
            while len(sent) < 5_000:
                nonce = str(len(sent))
                ping = {"nonce": nonce, "sent_at": "2026-01-01T00:00:00Z"}
                await peer.send("session.ping", ping)
                sent.append(nonce)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ping_away)
            await wait_all_tasks_blocked()
            assert len(sent) < 2_000
            pongs = [await peer.receive() for _ in range(5_000)]
        assert [pong["payload"]["ping_nonce"] for pong in pongs] == sent


@pytest.mark.spec("6.4-3", "6.4-7")
async def test_pings_are_answered_whatever_the_session_is_busy_with(
    autojump_clock: MockClock,
) -> None:
    """A slow command delays neither pings nor pongs, and they take no number."""
    async with open_stage(heartbeat_seconds=5) as stage:
        peer = await stage.welcomed()
        await peer.submit("puppet")
        stuck = trio.Event()
        sleep = stage.store.owner

        async def slow_lookup(job_id: str) -> object:
            await stuck.wait()
            return await sleep(job_id)

        stage.store.owner = slow_lookup  # type: ignore[method-assign, assignment]
        await peer.send("job.cancel", {"job_id": "job_unknown"})
        for n in range(8):
            await trio.sleep(2)
            sent = trio.current_time()
            await peer.send("session.ping", {"nonce": str(n)})
            await peer.expect("session.pong", ping_nonce=str(n))
            assert trio.current_time() - sent < 1
        stuck.set()
        await peer.expect("session.error", code="JOB_NOT_FOUND")
        await stage.puppet.say("first number")
        assert (await peer.expect("job.event"))["event_seq"] == 1


@pytest.mark.spec("6.2-4")
async def test_who_does_not_know_heartbeats_gets_none(autojump_clock: MockClock) -> None:
    """Without the feature a client is never pinged or lost, and its pings are answered."""
    async with open_stage(heartbeat_seconds=1) as stage:
        peer = await stage.connect()
        await peer.hello(features=("ack", "progress"))
        assert await listen(peer, 1_000) == []
        await peer.send("session.ping", {"nonce": "n"})
        assert (await peer.receive())["type"] == "session.pong"


@pytest.mark.parametrize("seconds", [0, 0.4, -1])
def test_an_interval_below_one_second_is_no_interval(seconds: float) -> None:
    """An interval below one second cannot be configured."""
    from arcp_trio import Limits

    with pytest.raises(ValueError, match="heartbeat_seconds"):
        Limits(heartbeat_seconds=seconds)  # type: ignore[arg-type]


# --- silence


@pytest.mark.spec("6.4-4")
async def test_two_silent_intervals_are_a_loss_that_is_announced(
    autojump_clock: MockClock,
) -> None:
    """After two silent intervals HEARTBEAT_LOST is sent and the connection closed."""
    async with open_stage(heartbeat_seconds=10) as stage:
        peer = await stage.welcomed(answer_pings=False)
        heard = await listen(peer, 19.9)
        assert [frame["type"] for _, frame in heard] == ["session.ping"]
        error = await peer.expect("session.error")
        assert trio.current_time() == pytest.approx(20, abs=0.1)
        assert error["payload"]["code"] == "HEARTBEAT_LOST"
        assert await close_code(peer) == 1008
        assert trio.current_time() == pytest.approx(20, abs=0.1)


@pytest.mark.parametrize(
    "sign",
    [
        '{"arcp":"1.1","id":"a","type":"session.pong","payload":{"ping_nonce":"?"}}',
        '{"arcp":"1.1","id":"a","type":"session.ack","payload":{"last_processed_seq":0}}',
        '{"arcp":"1.1","id":"a","type":"x-vendor.acme.nod","payload":{}}',
        "not even JSON",
        b"binary",
    ],
)
async def test_any_frame_is_a_sign_of_life(sign: str | bytes, autojump_clock: MockClock) -> None:
    """Any frame, even a malformed one, is a sign of life."""
    async with open_stage(heartbeat_seconds=10) as stage:
        peer = await stage.welcomed(answer_pings=False)
        for _ in range(5):
            heard = await listen(peer, 19)
            assert "HEARTBEAT_LOST" not in str(heard)
            await peer.send_raw(sign)
        await peer.send("session.ping", {"nonce": "n"})
        await peer.expect("session.pong")


@pytest.mark.spec("6.4-5", "6.4-6")
async def test_a_lost_heartbeat_ends_no_job_and_parks_the_session(
    autojump_clock: MockClock,
) -> None:
    """After a lost heartbeat the job runs on, and the session can be resumed."""
    async with open_stage(heartbeat_seconds=5, resume_window_seconds=600) as stage:
        peer = await stage.welcomed(answer_pings=False)
        job = (await peer.submit("sleeper", 300))["job_id"]
        assert await close_code(peer) == 1008
        assert trio.current_time() < 12
        await trio.sleep(590)
        second = await stage.resumed(peer.resume_from())
        terminal = await second.until_terminal(job)
        assert terminal["payload"]["result"] == "slept"
        assert lines(second.seen) == ["awake"]


async def test_a_window_begins_with_the_loss(autojump_clock: MockClock) -> None:
    """The window of a silent client begins when its connection is lost."""
    async with open_stage(heartbeat_seconds=30, resume_window_seconds=50) as stage:
        peer = await stage.welcomed(answer_pings=False)
        await close_code(peer)
        assert trio.current_time() == pytest.approx(60, abs=1)
        await trio.sleep(49)
        await stage.resumed(peer.resume_from())


# --- peers that do not read


@pytest.mark.parametrize("after", [0, 4, 8])
@pytest.mark.parametrize("features", [("heartbeat",), ()])
@pytest.mark.spec("14-18")
async def test_a_peer_that_does_not_read_is_lost(
    features: tuple[str, ...], after: float, autojump_clock: MockClock
) -> None:
    """A write without progress for two intervals is a loss, even without the feature."""
    async with open_stage(heartbeat_seconds=10, close_seconds=2) as stage:
        peer = await stage.connect()
        await peer.hello(features=features)
        resume = peer.resume_from()
        await trio.sleep(after)
        job = (await peer.submit("chatty", 1_000))["job_id"]
        started = trio.current_time()
        with pytest.raises(TransportClosed):
            await nod_forever(peer)  # the client is not silent, it only does not read
        assert 20 <= trio.current_time() - started <= 22.2
        second = await stage.resumed(resume)
        assert (await second.until_terminal(job))["event_seq"] == 1_001


async def nod_forever(peer: Peer) -> None:
    """Send signs of life until the connection is closed."""
    while True:
        await peer.send("x-vendor.acme.nod")
        await trio.sleep(0.1)


async def test_a_slow_reader_is_not_lost(autojump_clock: MockClock) -> None:
    """A write that progresses a little in every interval goes on."""
    async with open_stage(heartbeat_seconds=10) as stage:
        peer = await stage.connect()
        await peer.hello(features=())
        job = (await peer.submit("chatty", 1_000))["job_id"]
        while stage.recorder.terminal(job) is None:
            for _ in range(50):
                frame = await peer.receive()
                if frame["type"] == "job.result":
                    break
            await trio.sleep(12)
        assert trio.current_time() > 200


async def test_silence_counts_only_while_somebody_listens(autojump_clock: MockClock) -> None:
    """A client whose frames wait for room in its session's inbox is not silent."""
    async with open_stage(heartbeat_seconds=5, inbox_items=2, outbox_items=2) as stage:
        peer = await stage.welcomed()
        stuck = trio.Event()
        lookup = stage.store.owner

        async def slow_lookup(job_id: str) -> object:
            await stuck.wait()
            return await lookup(job_id)

        stage.store.owner = slow_lookup  # type: ignore[method-assign, assignment]
        for _ in range(10):
            await peer.send("job.cancel", {"job_id": "job_unknown"})
        await wait_all_tasks_blocked()
        heard = await listen(peer, 60)
        assert heard == []  # the pings are answered, though the client does not read the pongs
        stuck.set()
        for _ in range(10):
            await peer.expect("session.error", code="JOB_NOT_FOUND")


@pytest.mark.spec("6.4-4")
async def test_nothing_beats_after_the_end(autojump_clock: MockClock) -> None:
    """After their connections are gone, sessions have no tasks left."""
    async with open_stage(heartbeat_seconds=5) as stage:
        before = tasks()
        peers = [await stage.welcomed() for _ in range(100)]
        for n, peer in enumerate(peers):
            if n % 2:
                await peer.drop()
            else:
                await peer.send("session.close", {})
                await peer.expect("session.closed")
                await peer.close()
        await trio.sleep(1)
        assert tasks() == before


async def test_a_connection_that_goes_on_with_another_session_has_one_heartbeat(
    autojump_clock: MockClock,
) -> None:
    """The heartbeat of a session that is exchanged for another one ends with it."""
    async with open_stage(heartbeat_seconds=5) as stage:
        first = await stage.welcomed()
        await first.drop()
        second = await stage.resumed(first.resume_from())
        await trio.sleep(1)
        before = tasks()
        await second.drop()
        third = await stage.welcomed()
        await third.send("session.resume", second.resume_from())
        await third.expect("session.welcome", session_id=first.session_id)
        await trio.sleep(1)
        assert tasks() == before
        heard = await listen(third, 21)
        assert [frame["type"] for _, frame in heard] == []  # it answers pings, and is not lost
        await third.send("session.ping", {"nonce": "n"})
        assert (await third.receive())["type"] == "session.pong"
