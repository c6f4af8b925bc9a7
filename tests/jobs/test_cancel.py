"""Cancelling a job: what the client is answered, and what the agent may still do (§7.4)."""

from __future__ import annotations

import json

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    ArcpError,
    InvalidRequest,
    JobContext,
    Limits,
    PermissionDenied,
    Runtime,
)
from arcp_trio.store.writes import FinishJob
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json
from tests.jobs.cancelling import cancelled, encoded, refused, status_of
from tests.slow_stores import SlowStore
from tests.stage import make_runtime, simple_agents, stubborn_agents

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
    """A cancel is understood with `job_id` on the envelope and an empty payload."""
    job = await peer.submit("sleeper")
    await peer.send("job.cancel", {}, job_id=job["job_id"])
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["code"] == "CANCELLED"


@pytest.mark.parametrize("agent", ["echo", "failing"])
async def test_a_finished_job_is_not_cancelled_again(
    runtime: Runtime, peer: Peer, agent: str, autojump_clock: MockClock
) -> None:
    """Cancelling a finished job is refused with its final status, and changes nothing."""

    @runtime.agent("failing")
    async def failing(_job: JobContext) -> Json:
        raise PermissionDenied("no")

    job = await peer.submit(agent)
    status = (await peer.until_terminal(job["job_id"]))["payload"]["final_status"]
    for _ in range(2):
        error = await refused(peer, job["job_id"])
        assert error.code == "INVALID_REQUEST"
        assert status in error.message
    assert await status_of(peer, job["job_id"]) == status


async def test_a_cancelled_job_is_not_cancelled_again(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A cancel after the terminal is refused with a message that says it was cancelled."""
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
    """A client that ends all its jobs on any `session.error` gets no answer to a late cancel."""
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


async def test_a_cancel_between_the_end_and_its_commit(autojump_clock: MockClock) -> None:
    """Once the terminal is decided and being stored, no `job.cancelled` follows it."""
    async with make_runtime(store=SlowStore(5, FinishJob)) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        for agent in ("sleeper", "echo"):
            job = await peer.submit(agent)
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            await trio.sleep(1)
            # The store has not committed the terminal yet.
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            await trio.sleep(10)
            await peer.until_terminal(job["job_id"])
            await peer.submit("echo")


async def test_cancels_in_quick_succession(peer: Peer, autojump_clock: MockClock) -> None:
    """Of many cancels at once, those before the terminal are acknowledged, the rest refused."""
    for _ in range(20):
        job = await peer.submit("sleeper")
        requests = [await peer.send("job.cancel", {"job_id": job["job_id"]}) for _ in range(20)]
        answered = 0
        while answered < len(requests):
            frame = await peer.receive()
            answered += frame["type"] in ("job.cancelled", "session.error")
        await peer.until_terminal(job["job_id"])


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
    """A malformed cancel is INVALID_REQUEST with its request's id, and the job runs on."""
    job = await peer.submit("sleeper")
    frame = {"arcp": "1.1", "id": "bad", "type": "job.cancel", "payload": payload}
    await peer.send_raw(json.dumps(frame))
    with pytest.raises(InvalidRequest):
        await peer.answer("nothing else", "bad")
    assert await status_of(peer, job["job_id"]) == "running"


@pytest.mark.parametrize("reason", ["ü", '\u0000\n"\\', "\U0001f600" * 1000, "null"])
async def test_any_reason_is_repeated_as_it_is(
    peer: Peer, reason: str, autojump_clock: MockClock
) -> None:
    """Acknowledgement and terminal carry the text of the reason unchanged."""
    job = await peer.submit("sleeper")
    await peer.send("job.cancel", {"job_id": job["job_id"], "reason": reason})
    assert (await peer.expect("job.cancelled"))["payload"]["reason"] == reason
    assert (await peer.expect("job.error"))["payload"]["message"] == reason


# -- the agent's side


@pytest.mark.spec("1.0/7.4-2")
async def test_an_agent_that_cleans_up_is_heard_within_the_grace(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """What an agent emits while cleaning up comes between acknowledgement and terminal."""

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
    """The terminal comes when the grace is over; what the agent emits after it is dropped."""
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
    """An exception during clean-up is logged, and the job still ends as cancelled."""

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
    """A job whose agent does not stop no longer counts towards `jobs` after its terminal."""
    async with (
        make_runtime(
            simple_agents, stubborn_agents, limits=Limits(cancel_grace_seconds=1, jobs=1)
        ) as runtime,
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
    """No cancel is lost, however early: each is sent in one write with the next submit."""
    submit = encoded("job.submit", {"agent": "sleeper"})
    await peer.transport.send([submit])
    accepted = await peer.expect("job.accepted")
    for _ in range(1000):
        job_id = accepted["job_id"]
        cancel = encoded("job.cancel", {"job_id": job_id})
        await peer.transport.send([cancel, submit])
        accepted = await peer.expect("job.accepted")  # before the end of the other job, or after
        end = await peer.until_terminal(job_id)
        assert end["payload"]["final_status"] == "cancelled"
