"""How a client leaves, and what happens to its session and jobs (§6.7)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.transport import TransportClosed
from arcp_trio.wire.errors import PermissionDenied
from tests.footprint import tasks
from tests.inside import connected_principals, live_jobs
from tests.metrics import scrape
from tests.reading import close_code, lines
from tests.sessions.support import open_stage


@pytest.mark.spec("6.7-1")
@pytest.mark.parametrize("payload", [{}, {"reason": None}, {"reason": "lunch"}])
async def test_a_close_is_answered_and_the_socket_closed(
    payload: dict[str, str | None], autojump_clock: MockClock
) -> None:
    """A close gets one session.closed with its reason, and then a Close with 1000."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        started = trio.current_time()
        await peer.send("session.close", payload)
        closed = await peer.receive()
        assert closed["type"] == "session.closed"
        assert closed["payload"] == {name: value for name, value in payload.items() if value}
        assert await close_code(peer) == 1000
        assert trio.current_time() == started
        assert peer.seen == []


@pytest.mark.spec("6.7-1")
async def test_what_was_asked_before_is_answered_before(autojump_clock: MockClock) -> None:
    """Answers and events before a close come first; requests after it are ignored."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("puppet"))["job_id"]
        await stage.puppet.say("before")
        unknown = await peer.send("job.cancel", {"job_id": "job_unknown"})
        await peer.send("session.close", {})
        await peer.send("job.cancel", {"job_id": job})
        await peer.send("session.close", {})
        await peer.expect("session.closed")
        event, error = peer.seen
        assert lines([event]) == ["before"]
        assert error["payload"]["request_id"] == unknown
        assert await close_code(peer) == 1000
        await stage.puppet.finish()
        assert scrape(stage.runtime)("jobs_finished_total", outcome="success") == 1


@pytest.mark.spec("6.7-2")
@pytest.mark.parametrize("farewell", ["session.close", "session.bye", "Close", "drop"])
async def test_however_a_client_leaves_its_jobs_run_on(
    farewell: str, autojump_clock: MockClock
) -> None:
    """The jobs of a client that left run on, and its session can be resumed."""
    async with open_stage(resume_window_seconds=600) as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("sleeper", 100))["job_id"]
        match farewell:
            case "drop":
                await peer.drop()
            case "Close":
                await peer.close()
            case _:
                await peer.send(farewell, {"reason": "lunch"})
                await close_code(peer)
        await trio.sleep(590)
        assert not live_jobs(stage.runtime)
        second = await stage.resumed(peer.resume_from())
        assert (await second.until_terminal(job))["payload"]["result"] == "slept"


@pytest.mark.spec("1.0/6.4-1")
async def test_a_bye_is_not_answered(autojump_clock: MockClock) -> None:
    """A bye closes the socket without an answer, and what follows it is ignored."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.send("session.bye")
        await peer.send("job.submit", {"agent": "puppet"})
        with pytest.raises(TransportClosed) as closed:
            await peer.receive()
        assert closed.value.code == 1000
        await wait_all_tasks_blocked()
        assert stage.puppet.runs == 0


async def test_a_peer_that_goes_without_reading_is_let_go(autojump_clock: MockClock) -> None:
    """A client that does not read its farewell is disconnected after `close_seconds`."""
    async with open_stage(heartbeat_seconds=1_000, close_seconds=2) as stage:
        peer = await stage.welcomed(features=())  # without ack, it gets no notice of falling behind
        job = (await peer.submit("chatty", 5_000))["job_id"]
        resume = peer.resume_from()
        await wait_all_tasks_blocked()
        await peer.send("session.close", {})
        await trio.sleep(2 * 2 + 0.1)  # for the frames that are due, and for the Close
        assert not connected_principals(stage.runtime)
        second = await stage.resumed(resume)
        assert (await second.until_terminal(job))["event_seq"] == 5_001


async def test_a_peer_that_does_not_answer_the_close_is_let_go(autojump_clock: MockClock) -> None:
    """The answer to the Close is awaited for `close_seconds`, and no task remains."""
    async with open_stage(close_seconds=2) as stage:
        before = tasks()
        peer = await stage.welcomed()
        await peer.send("session.close", {})
        await trio.sleep(2.1)
        await peer.drop()
        await wait_all_tasks_blocked()
        assert tasks() == before


# --- who may cancel afterwards


async def test_after_a_close_any_session_of_the_principal_may_cancel(
    autojump_clock: MockClock,
) -> None:
    """After a close, other sessions of the principal may cancel the jobs."""
    async with open_stage() as stage:
        submitter, other = await stage.welcomed(), await stage.welcomed()
        job = (await submitter.submit("puppet"))["job_id"]
        cancel = await other.send("job.cancel", {"job_id": job})
        with pytest.raises(PermissionDenied):
            await other.answer("job.cancelled", cancel)
        await submitter.send("session.close", {})
        await submitter.expect("session.closed")
        await other.send("job.cancel", {"job_id": job})
        await other.expect("job.cancelled", job_id=job)
        second = await stage.resumed(submitter.resume_from())
        assert (await second.until_terminal(job))["payload"]["code"] == "CANCELLED"


async def test_after_the_window_any_session_of_the_principal_may_cancel(
    autojump_clock: MockClock,
) -> None:
    """After its window, other sessions of the principal may cancel a session's jobs."""
    async with open_stage(resume_window_seconds=100) as stage:
        submitter = await stage.welcomed()
        job = (await submitter.submit("puppet"))["job_id"]
        await submitter.drop()
        other = await stage.connect()
        await other.hello(features=())
        await trio.sleep(90)
        cancel = await other.send("job.cancel", {"job_id": job})
        with pytest.raises(PermissionDenied):
            await other.answer("job.cancelled", cancel)
        await trio.sleep(11)
        await other.send("job.cancel", {"job_id": job})
        await other.expect("job.cancelled", job_id=job)


async def test_after_a_close_the_session_itself_may_cancel_too(autojump_clock: MockClock) -> None:
    """A session that was closed and resumed may still cancel its jobs."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        job = (await peer.submit("puppet"))["job_id"]
        await peer.send("session.close", {})
        await close_code(peer)
        second = await stage.resumed(peer.resume_from())
        await second.send("job.cancel", {"job_id": job})
        await second.expect("job.cancelled", job_id=job)
