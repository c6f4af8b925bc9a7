"""Raw peers over the real WebSocket code."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, Runtime
from arcp_trio.testing import open_peer, open_peers
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.errors import AgentNotAvailable, ResumeWindowExpired, Unauthenticated


@pytest.fixture
def arcp_runtime(arcp_runtime: Runtime) -> Runtime:
    """Register the agent of these tests."""

    @arcp_runtime.agent("ticker", version="1.0.0")
    async def ticker(job: JobContext) -> str:
        for n in range(job.input):
            await job.log(str(n))
            await trio.sleep(1)
        return "ticked"

    return arcp_runtime


async def test_a_conversation(arcp_runtime: Runtime, autojump_clock: MockClock) -> None:
    """A peer opens a session, submits a job and receives all its frames, which are recorded."""
    async with open_peer(arcp_runtime) as peer:
        welcome = await peer.hello()
        assert welcome["session_id"] == peer.session_id
        accepted = await peer.submit("ticker", 3)
        terminal = await peer.until_terminal(accepted["job_id"])
        assert terminal["payload"]["result"] == "ticked"
        assert terminal == peer.recorder.terminal(accepted["job_id"])
        assert [f["event_seq"] for f in peer.seen if f["type"] == "job.event"] == [1, 2, 3]
        assert peer.resume_from() == {
            "session_id": peer.session_id,
            "resume_token": welcome["payload"]["resume_token"],
            "last_event_seq": 4,
        }


async def test_a_terminal_can_be_asked_for_after_it_has_passed(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A peer can wait for the ends of two jobs in another order than that in which they come."""
    async with open_peer(arcp_runtime) as peer:
        await peer.hello()
        quick, slow = await peer.submit("ticker", 0), await peer.submit("ticker", 3)
        assert (await peer.until_terminal(slow["job_id"]))["job_id"] == slow["job_id"]
        assert (await peer.until_terminal(quick["job_id"]))["job_id"] == quick["job_id"]


async def test_expect_passes_over_what_does_not_fit(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """`expect` selects by fields of payload and envelope, and keeps other frames in `seen`."""
    async with open_peer(arcp_runtime) as peer:
        await peer.hello()
        job_id = (await peer.submit("ticker", 3))["job_id"]
        third = await peer.expect("job.event", kind="log", event_seq=3, job_id=job_id)
        assert third["payload"]["body"]["message"] == "2"
        assert [f["event_seq"] for f in peer.seen] == [1, 2]


async def test_patience_ends(arcp_runtime: Runtime, autojump_clock: MockClock) -> None:
    """A frame that does not come raises an AssertionError that names it and those that came."""
    async with open_peer(arcp_runtime) as peer:
        await peer.hello()
        peer.patience = 5
        await peer.send("session.ping", {"nonce": "n", "sent_at": "2026-01-01T00:00:00Z"})
        with pytest.raises(AssertionError, match=r"no job.accepted .*session.pong"):
            await peer.expect("job.accepted")


async def test_refusals_raise_their_class(arcp_runtime: Runtime) -> None:
    """A refused hello and a refused submit raise the class of the refusal's code."""
    async with open_peers(arcp_runtime) as peers:
        with pytest.raises(Unauthenticated):
            await (await peers.connect()).hello(token="wrong")
        peer = await peers.connect()
        await peer.hello()
        with pytest.raises(AgentNotAvailable):
            await peer.submit("nobody")


async def test_a_session_goes_through_several_connections(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A session that is dropped and resumed twice has no gap and no repeat in its numbers."""
    async with open_peers(arcp_runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        job_id = (await peer.submit("ticker", 9))["job_id"]
        await peer.expect("job.event", event_seq=4)
        await peer.drop()
        with pytest.raises(TransportClosed):
            await peer.receive()
        second = await peers.connect()
        await second.hello(resume=peer.resume_from())
        assert (await second.receive())["event_seq"] == 5
        await second.close()
        third = await peers.connect()
        await third.hello(resume=second.resume_from() | {"last_event_seq": 0})
        assert (await third.until_terminal(job_id))["event_seq"] == 10
        assert len(peers.recorder.events(job_id)) == 9
        stale = await peers.connect()
        with pytest.raises(ResumeWindowExpired):
            await stale.hello(resume=peer.resume_from())


async def test_pings_are_answered_or_not(arcp_runtime: Runtime, autojump_clock: MockClock) -> None:
    """A peer answers pings, which keeps its connection, unless it is told not to and shows them."""
    async with open_peers(arcp_runtime) as peers:
        lively, silent = await peers.connect(), await peers.connect(answer_pings=False)
        await lively.hello()
        await silent.hello()
        with trio.move_on_after(600) as ten_minutes:
            await lively.receive()
        assert ten_minutes.cancelled_caught
        await silent.expect("session.ping")
        await silent.expect("session.error", code="HEARTBEAT_LOST")
        with pytest.raises(TransportClosed):
            await silent.receive()


async def test_raw_frames(arcp_runtime: Runtime, autojump_clock: MockClock) -> None:
    """A peer can send malformed messages, as text and as binary, with each size of frame header."""
    async with open_peer(arcp_runtime) as peer:
        await peer.hello()
        for raw in ("nonsense", b"{}", b"x" * 1_000, b"y" * 100_000):
            await peer.send_raw(raw)
            await peer.expect("session.error", code="INVALID_REQUEST")


async def test_peers_of_one_factory_share_a_record(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Two sessions of one factory are numbered and recorded separately."""
    async with open_peers(arcp_runtime) as peers:
        for _ in range(2):
            peer = await peers.connect()
            await peer.hello()
            await peer.until_terminal((await peer.submit("ticker", 2))["job_id"])
            assert peer.session_id is not None
            assert peers.recorder.highest(peer.session_id) == 3
