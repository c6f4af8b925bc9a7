"""Cancelling: who may, what they are answered, and what becomes of the agent (§7.4)."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    ArcpError,
    InvalidRequest,
    JobContext,
    JobNotFound,
    Limits,
    MemoryStore,
    PermissionDenied,
    Runtime,
)
from arcp_trio.runtime.policy import Policy
from arcp_trio.store.records import KeyRow
from arcp_trio.store.writes import FinishJob, Write
from arcp_trio.testing import Peer, open_peer, open_peers
from arcp_trio.wire.json import Json
from tests.jobs.runtimes import BOB, OPERATOR, make_runtime


async def refused(peer: Peer, job_id: str) -> ArcpError:
    """How a cancel of this job is refused."""
    request = await peer.send("job.cancel", {"job_id": job_id})
    with pytest.raises(ArcpError) as refusal:
        await peer.answer("nothing else", request)
    return refusal.value


async def cancelled(peer: Peer, job_id: str) -> None:
    """Cancel a job and see it acknowledged."""
    await peer.send("job.cancel", {"job_id": job_id})
    await peer.expect("job.cancelled", job_id=job_id)


def encoded(kind: str, payload: Json) -> bytes:
    """A frame to be written together with others."""
    return json.dumps({"arcp": "1.1", "id": "1", "type": kind, "payload": payload}).encode()


# -- the answer


@pytest.mark.parametrize("reason", ["no longer needed", "", None])
@pytest.mark.spec("7.4-1", "7.4-2", "7.4-3", "1.0/7.4-1")
async def test_a_cancel_is_acknowledged_then_the_job_ends(
    peer: Peer, reason: str | None, autojump_clock: MockClock
) -> None:
    """`job.cancelled` comes first, unnumbered; then `job.error` with CANCELLED; then nothing."""
    job = await peer.submit("sleeper")
    request: dict[str, Json] = {"job_id": job["job_id"]}
    if reason is not None:
        request["reason"] = reason
    await peer.send("job.cancel", request)
    acknowledged, end = await peer.receive(), await peer.receive()
    assert acknowledged["type"] == "job.cancelled"
    assert acknowledged["job_id"] == job["job_id"]
    assert acknowledged["payload"] == request
    assert "event_seq" not in acknowledged
    assert end["type"] == "job.error"
    assert end["job_id"] == job["job_id"]
    assert end["payload"]["code"] == "CANCELLED"
    assert end["payload"]["final_status"] == "cancelled"
    assert end["payload"]["retryable"] is False
    assert end["payload"]["message"] == (reason or "the job was cancelled")
    with trio.move_on_after(50):
        frame = await peer.receive()
        pytest.fail(f"after the end: {frame}")


@pytest.mark.spec("7.4-1")
async def test_the_job_may_be_named_on_the_envelope_alone(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """Clients that put `job_id` on the envelope and nothing into the payload are understood."""
    job = await peer.submit("sleeper")
    await peer.send("job.cancel", {}, job_id=job["job_id"])
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["code"] == "CANCELLED"


@pytest.mark.parametrize("agent", ["echo", "failing"])
async def test_a_finished_job_is_not_cancelled_again(
    runtime: Runtime, peer: Peer, agent: str, autojump_clock: MockClock
) -> None:
    """One refusal that names the final status; no second terminal; the job stays what it was."""

    @runtime.agent("failing")
    async def failing(_job: JobContext) -> Json:
        raise PermissionDenied("no")

    job = await peer.submit(agent)
    status = (await peer.until_terminal(job["job_id"]))["payload"]["final_status"]
    for _ in range(2):
        error = await refused(peer, job["job_id"])
        assert error.code == "INVALID_REQUEST"
        assert status in error.message
    row = await runtime._core.store.job(job["job_id"])
    assert row is not None
    assert row.status == status


async def test_a_cancelled_job_is_not_cancelled_again(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """Whoever cancels again after the terminal is told that the job has been cancelled."""
    job = await peer.submit("sleeper")
    await cancelled(peer, job["job_id"])
    await peer.until_terminal(job["job_id"])
    error = await refused(peer, job["job_id"])
    assert error.code == "INVALID_REQUEST"
    assert "cancelled" in error.message


@pytest.mark.parametrize(
    "hello", [{"capabilities": {"agents": [], "features": []}}, {"id": "msg_1"}]
)
async def test_a_late_cancel_of_a_client_that_would_panic_stays_unanswered(
    runtime: Runtime, hello: dict[str, Json], autojump_clock: MockClock
) -> None:
    """Some clients take any `session.error` for the end of all their jobs; silence harms nobody."""
    async with open_peer(runtime) as peer:
        envelope = {name: value for name, value in hello.items() if name == "id"}
        await peer.send(
            "session.hello",
            {
                "client": {"name": "x", "version": "1"},
                "auth": {"scheme": "bearer", "token": "test-token"},
                "capabilities": hello.get("capabilities", {}),
            },
            **envelope,
        )
        await peer.expect("session.welcome")
        job = await peer.submit("echo")
        await peer.until_terminal(job["job_id"])
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        await peer.submit("echo", "and goes on")
        assert not [frame for frame in peer.seen if frame["type"] == "session.error"]


class SlowEnds(MemoryStore):
    """A store in which a terminal takes its time to be stored."""

    async def _commit(self, writes: Sequence[Write]) -> None:
        if any(isinstance(write, FinishJob) for write in writes):
            await trio.sleep(5)
        await super()._commit(writes)


async def test_a_cancel_between_the_end_and_its_commit(autojump_clock: MockClock) -> None:
    """Once the terminal is decided on and on its way, no `job.cancelled` follows it."""
    async with make_runtime(store=SlowEnds()) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        for agent in ("sleeper", "echo"):
            job = await peer.submit(agent)
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            await trio.sleep(1)
            # The store is still at it.
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            await trio.sleep(10)
            await peer.until_terminal(job["job_id"])
            await peer.submit("echo")


async def test_cancels_in_quick_succession(peer: Peer, autojump_clock: MockClock) -> None:
    """Any number of cancels at once: acknowledged until the terminal, refused behind it."""
    for _ in range(20):
        job = await peer.submit("sleeper")
        requests = [await peer.send("job.cancel", {"job_id": job["job_id"]}) for _ in range(20)]
        answered = 0
        while answered < len(requests):
            frame = await peer.receive()
            answered += frame["type"] in ("job.cancelled", "session.error")
        await peer.until_terminal(job["job_id"])


# -- who may


@pytest.mark.parametrize("status", ["running", "success"])
@pytest.mark.spec("12-2", "6.6-5")
async def test_anothers_job_is_like_none(
    runtime: Runtime, peer: Peer, status: str, autojump_clock: MockClock
) -> None:
    """A foreign job, live or over, is answered in the same words as one that never was."""
    job = await peer.submit("sleeper" if status == "running" else "echo")
    if status == "success":
        await peer.until_terminal(job["job_id"])
    async with open_peer(runtime) as bob:
        await bob.hello(token=BOB)
        foreign = await refused(bob, job["job_id"])
        unknown = await refused(bob, "job_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert isinstance(foreign, JobNotFound)
    assert foreign.payload() == unknown.payload()
    row = await runtime._core.store.job(job["job_id"])
    assert row is not None
    assert row.status == status


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
    assert job["job_id"] in runtime._core.jobs.live


@pytest.mark.spec("7.4-1")
async def test_a_resumed_session_still_may(runtime: Runtime, autojump_clock: MockClock) -> None:
    """Authority to cancel belongs to the session, not to the connection."""
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
    """The same idempotency key makes another session a submitter, with a submitter's rights."""
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
    """Sent before the acceptance is there, it is judged behind what it was sent behind."""
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
    """Submitting something else gives no right over the job."""
    job = await peer.submit("sleeper")
    submit = {"agent": "sleeper", "idempotency_key": "k"}
    async with open_peer(runtime) as other:
        await other.hello()
        cancel = {"job_id": job["job_id"]}
        await other.transport.send([encoded("job.submit", submit), encoded("job.cancel", cancel)])
        assert (await other.receive())["type"] == "job.accepted"
        answer = await other.receive()
        assert answer["payload"]["code"] == "PERMISSION_DENIED"


class SlowKey(MemoryStore):
    """Has to think about one key until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = trio.Event()

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        """What the key stands for."""
        if key == "slow":
            await self.go_on.wait()
        return await super().key(principal, key, now)


async def test_a_job_that_has_not_begun_ends_at_once(autojump_clock: MockClock) -> None:
    """There is no agent to wait for; whoever is still to hear of its acceptance hears of both."""
    async with (
        make_runtime(store=(store := SlowKey())) as runtime,
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
        await trio.sleep(1)
        store.go_on.set()
        await peer.expect("job.accepted")
        await peer.expect("job.accepted", job_id=job["job_id"])
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["code"] == "CANCELLED"


async def test_when_one_submitter_goes_the_other_keeps_the_right(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A job is anybody's of its principal only when the last submitting session is gone."""
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
    """With its session closed or its window over, any of its principal may; nobody else."""
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
    """A close that overtakes the acceptance counts for that job, too."""
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
    """Who may observe a job is told that it may not cancel it, even when no submitter is left."""
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
        assert job_id in runtime._core.jobs.live


async def test_an_operator_may_cancel_any_job(autojump_clock: MockClock) -> None:
    """An operator cancels the job of another principal; the submitter is told of the end."""
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


# -- bad requests


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"job_id": None},
        {"job_id": ""},
        {"job_id": 7},
        {"job_id": ["job"]},
        {"job_id": "j" * 300},
        {"job_id": "job", "reason": 7},
        {"job_id": "job", "reason": "r" * 5000},
        7,
        "job",
        [],
        None,
    ],
    ids=repr,
)
@pytest.mark.spec("12-5")
async def test_a_malformed_cancel_cancels_nothing(
    runtime: Runtime, peer: Peer, payload: Json, autojump_clock: MockClock
) -> None:
    """Another shape is `INVALID_REQUEST`, naming its request; no job notices anything."""
    job = await peer.submit("sleeper")
    frame = {"arcp": "1.1", "id": "bad", "type": "job.cancel", "payload": payload}
    await peer.send_raw(json.dumps(frame))
    with pytest.raises(InvalidRequest):
        await peer.answer("nothing else", "bad")
    assert job["job_id"] in runtime._core.jobs.live


@pytest.mark.parametrize("reason", ["ü", '\u0000\n"\\', "\U0001f600" * 1000, "null"])
async def test_any_reason_is_repeated_as_it_is(
    peer: Peer, reason: str, autojump_clock: MockClock
) -> None:
    """Whatever text the reason is, acknowledgement and terminal carry it unchanged."""
    job = await peer.submit("sleeper")
    await peer.send("job.cancel", {"job_id": job["job_id"], "reason": reason})
    assert (await peer.expect("job.cancelled"))["payload"]["reason"] == reason
    assert (await peer.expect("job.error"))["payload"]["message"] == reason


# -- the agent's side


@pytest.mark.spec("1.0/7.4-2")
async def test_an_agent_that_cleans_up_is_heard_within_the_grace(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """What it says while it cleans up comes between the acknowledgement and the terminal."""

    @runtime.agent("tidy")
    async def tidy(job: JobContext) -> Json:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(5, shield=True):
                await trio.sleep(3)
                await job.log("tidied up")

    job = await peer.submit("tidy")
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    types = [(await peer.receive())["type"] for _ in range(3)]
    assert types == ["job.cancelled", "job.event", "job.error"]


@pytest.mark.spec("1.0/7.4-2", "7.4-3")
async def test_an_agent_that_shields_itself_is_cut_off(autojump_clock: MockClock) -> None:
    """The terminal comes when the grace is over; from then on the agent's words go nowhere."""
    refusals: list[ArcpError] = []
    async with (
        make_runtime(limits=Limits(cancel_grace_seconds=3)) as runtime,
        open_peer(runtime) as peer,
    ):

        @runtime.agent("deaf")
        async def deaf(job: JobContext) -> Json:
            with trio.CancelScope(shield=True):
                for second in range(10):
                    try:
                        await job.log(f"second {second}")
                    except ArcpError as error:
                        error.details["seen"] = second
                        refusals.append(error)
                    await trio.sleep(1)
            return "a result that comes too late"

        await peer.hello()
        job = await peer.submit("deaf")
        await trio.sleep(2.5)
        begun = trio.current_time()
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        end = await peer.until_terminal(job["job_id"])
        assert trio.current_time() - begun == pytest.approx(3)
        assert end["payload"]["code"] == "CANCELLED"
        assert len(peer.recorder.events(job["job_id"])) == 6
        with trio.move_on_after(20):
            frame = await peer.receive()
            pytest.fail(f"after the end: {frame}")
        assert [error.code for error in refusals] == ["CANCELLED"] * 4
        assert [error.details for error in refusals] == [{"seen": n} for n in range(6, 10)]


async def test_a_result_after_the_cancel_does_not_count(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """An agent that swallows its cancellation and returns is cancelled all the same."""

    @runtime.agent("swallowing")
    async def swallowing(job: JobContext) -> Json:
        with trio.CancelScope(shield=True):
            await trio.sleep(1)
        return "done"

    job = await peer.submit("swallowing")
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    end = await peer.until_terminal(job["job_id"])
    assert end["type"] == "job.error"
    assert end["payload"]["final_status"] == "cancelled"


@pytest.mark.logs_error("agent=clumsy")
async def test_an_exception_while_cleaning_up_does_not_count(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """It is logged; the job was cancelled and says so."""

    @runtime.agent("clumsy")
    async def clumsy(_job: JobContext) -> Json:
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("the broom is broken")

    job = await peer.submit("clumsy")
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["code"] == "CANCELLED"


async def test_an_agent_cut_off_frees_its_place(autojump_clock: MockClock) -> None:
    """What counts against `jobs` is a job, not an agent that will not go."""
    async with (
        make_runtime(limits=Limits(cancel_grace_seconds=1, jobs=1)) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        job = await peer.submit("stubborn", 30)
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        await peer.until_terminal(job["job_id"])
        await peer.submit("echo")


async def test_a_thousand_cancels_right_behind_the_acceptance(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A cancel is never lost, however early: each rides with the next submit, in one write."""
    submit = encoded("job.submit", {"agent": "sleeper"})
    await peer.transport.send([submit])
    for _ in range(1000):
        job_id = (await peer.expect("job.accepted"))["job_id"]
        cancel = encoded("job.cancel", {"job_id": job_id})
        await peer.transport.send([cancel, submit])
        end = await peer.until_terminal(job_id)
        assert end["payload"]["final_status"] == "cancelled"
