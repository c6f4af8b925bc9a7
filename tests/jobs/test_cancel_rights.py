"""Which sessions and principals may cancel a job (§7.4)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, JobNotFound, PermissionDenied, Policy, Runtime
from arcp_trio.testing import Peer, open_peer, open_peers
from arcp_trio.wire.json import Json
from tests.jobs.cancelling import cancelled, encoded, refused, status_of
from tests.slow_stores import SlowKeys
from tests.stage import BOB, OPERATOR, make_runtime

# -- who may


@pytest.mark.parametrize("status", ["running", "success"])
@pytest.mark.spec("12-2", "6.6-5")
async def test_anothers_job_is_like_none(
    runtime: Runtime, peer: Peer, status: str, autojump_clock: MockClock
) -> None:
    """Cancelling a job of another principal, live or over, is answered as an unknown job is."""
    job = await peer.submit("sleeper" if status == "running" else "echo")
    if status == "success":
        await peer.until_terminal(job["job_id"])
    async with open_peer(runtime) as bob:
        await bob.hello(token=BOB)
        foreign = await refused(bob, job["job_id"])
        unknown = await refused(bob, "job_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert isinstance(foreign, JobNotFound)
    assert foreign.payload() == unknown.payload()
    assert await status_of(peer, job["job_id"]) == status


@pytest.mark.spec("7.6-14", "14-2")
async def test_another_session_of_the_principal_may_not(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """While a submitting session exists, attached or parked, no other session cancels its job."""
    job = await peer.submit("sleeper")
    for leave in (None, peer.drop):
        if leave is not None:
            await leave()
            await trio.sleep(runtime.limits.resume_window_seconds - 10)
        async with open_peer(runtime) as other:
            await other.hello()
            assert isinstance(await refused(other, job["job_id"]), PermissionDenied)
            assert await status_of(other, job["job_id"]) == "running"


@pytest.mark.spec("7.4-1")
async def test_a_resumed_session_still_may(runtime: Runtime, autojump_clock: MockClock) -> None:
    """The right to cancel belongs to the session, not to its connection."""
    async with open_peers(runtime) as peers:
        first = await peers.connect()
        await first.hello()
        job = await first.submit("sleeper")
        await first.drop()
        second = await peers.connect()
        await second.hello(resume=first.resume_from())
        await cancelled(second, job["job_id"])
        end = await second.until_terminal(job["job_id"])
        assert end["payload"]["code"] == "CANCELLED"


async def test_a_session_that_submitted_it_again_may(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A session that submits the same idempotency key may cancel the job, too."""
    job = await peer.submit("sleeper", idempotency_key="k")
    async with open_peer(runtime) as other:
        await other.hello()
        assert (await other.submit("sleeper", idempotency_key="k"))["job_id"] == job["job_id"]
        await cancelled(other, job["job_id"])
        for each in (other, peer):
            end = await each.until_terminal(job["job_id"])
            assert end["payload"]["code"] == "CANCELLED"


async def test_a_cancel_right_behind_a_repeated_submit_is_a_submitters(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A cancel sent right after a repeated submit is judged after that submit."""
    submit = {"agent": "sleeper", "idempotency_key": "k"}
    job = await peer.submit(**submit)
    cancel = {"job_id": job["job_id"]}
    async with open_peer(runtime) as again:
        await again.hello()
        await again.transport.send([encoded("job.submit", submit), encoded("job.cancel", cancel)])
        await again.expect("job.accepted", job_id=job["job_id"])
        await again.expect("job.cancelled", job_id=job["job_id"])
    assert (await peer.until_terminal(job["job_id"]))["payload"]["code"] == "CANCELLED"


async def test_a_cancel_behind_other_submits_is_refused_in_its_turn(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """Submitting another job gives no right to cancel this one."""
    job = await peer.submit("sleeper")
    submit = {"agent": "sleeper", "idempotency_key": "k"}
    async with open_peer(runtime) as other:
        await other.hello()
        cancel = {"job_id": job["job_id"]}
        await other.transport.send([encoded("job.submit", submit), encoded("job.cancel", cancel)])
        assert (await other.receive())["type"] == "job.accepted"
        answer = await other.receive()
        assert answer["payload"]["code"] == "PERMISSION_DENIED"


async def test_a_job_that_has_not_begun_ends_at_once(autojump_clock: MockClock) -> None:
    """A job that has not begun ends at once; all its submitters get acceptance and terminal."""
    async with (
        make_runtime(store=SlowKeys({"slow": 1})) as runtime,
        open_peer(runtime) as peer,
        open_peer(runtime) as other,
    ):
        await peer.hello()
        await other.hello()
        for key in ("slow", "k"):
            await peer.send("job.submit", {"agent": "sleeper", "idempotency_key": key})
        job = await other.submit("sleeper", idempotency_key="k")
        began = trio.current_time()
        await cancelled(other, job["job_id"])
        await other.until_terminal(job["job_id"])
        assert trio.current_time() == began
        await peer.expect("job.accepted")
        await peer.expect("job.accepted", job_id=job["job_id"])
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["code"] == "CANCELLED"


async def test_when_one_submitter_goes_the_other_keeps_the_right(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """Other sessions may cancel a job only after its last submitting session is gone."""
    job = await peer.submit("sleeper", idempotency_key="k")
    async with open_peer(runtime) as again, open_peer(runtime) as third:
        for each in (again, third):
            await each.hello()
        await again.submit("sleeper", idempotency_key="k")
        await peer.send("session.close")
        await peer.expect("session.closed")
        assert isinstance(await refused(third, job["job_id"]), PermissionDenied)
        await again.send("session.close")
        await again.expect("session.closed")
        await cancelled(third, job["job_id"])


@pytest.mark.parametrize("how", ["closed", "expired"])
async def test_a_job_without_submitting_session_can_be_stopped(
    runtime: Runtime, peer: Peer, how: str, autojump_clock: MockClock
) -> None:
    """After its session was closed or expired, any session of the same principal may cancel."""
    job = await peer.submit("sleeper")
    if how == "closed":
        await peer.send("session.close")
        await peer.expect("session.closed")
    else:
        await peer.drop()
        await trio.sleep(runtime.limits.resume_window_seconds + 5)
    async with open_peer(runtime) as bob, open_peer(runtime) as other:
        await bob.hello(token=BOB)
        assert isinstance(await refused(bob, job["job_id"]), JobNotFound)
        await other.hello()
        await cancelled(other, job["job_id"])


async def test_a_job_submitted_just_before_the_close_can_be_stopped(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A job submitted right before its session's close can be cancelled by another session."""
    ids: list[str] = []

    @runtime.agent("noting")
    async def noting(job: JobContext) -> Json:
        ids.append(job.id)
        await trio.sleep_forever()

    submit = encoded("job.submit", {"agent": "noting"})
    await peer.transport.send([submit, encoded("session.close", {})])
    await peer.expect("session.closed")
    await trio.sleep(1)
    async with open_peer(runtime) as other:
        await other.hello()
        await cancelled(other, ids[0])


@pytest.mark.spec("7.6-13", "14-2")
@pytest.mark.parametrize("submitter", ["there", "gone"])
async def test_an_observer_of_other_principals_may_not(
    submitter: str, autojump_clock: MockClock
) -> None:
    """An observer may not cancel, even when no submitting session is left."""
    policy = Policy(observers={"bob"})
    async with make_runtime(policy=policy) as runtime, open_peers(runtime) as peers:
        peer, bob = await peers.connect(), await peers.connect()
        await peer.hello()
        await bob.hello(token=BOB)
        job_id = (await peer.submit("sleeper"))["job_id"]
        if submitter == "gone":
            await peer.send("session.close")
            await peer.expect("session.closed")
        await bob.send("job.subscribe", {"job_id": job_id})
        await bob.expect("job.subscribed")
        assert isinstance(await refused(bob, job_id), PermissionDenied)
        assert await status_of(bob, job_id) == "running"


async def test_an_operator_may_cancel_any_job(autojump_clock: MockClock) -> None:
    """An operator cancels another principal's job, and the submitter is told of its end."""
    async with (
        make_runtime(operators=["operator"]) as runtime,
        open_peer(runtime) as peer,
        open_peer(runtime) as operator,
    ):
        await peer.hello()
        await operator.hello(token=OPERATOR)
        job = await peer.submit("sleeper")
        await cancelled(operator, job["job_id"])
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["code"] == "CANCELLED"
