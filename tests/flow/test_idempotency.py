"""The same submit again: one job, one acceptance, and which sessions get its events (§7.2)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.testing import Peer
from arcp_trio.wire.errors import InvalidRequest, JobNotFound
from arcp_trio.wire.json import Json
from tests.flow.support import Flow, open_flow, read_to, same
from tests.slow_stores import SlowKeys
from tests.stage import BOB

# -- the same session


@pytest.mark.spec("7.2-1", "1.0/7.2-1")
async def test_the_same_submit_again_is_the_same_job(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """While a job runs, the same submit gets the first acceptance and runs nothing."""
    first = await peer.submit("sleeper", {"a": 1}, idempotency_key="k")
    await trio.sleep(60)
    again = await peer.submit("sleeper", {"a": 1}, idempotency_key="k")
    assert same(first, again)
    assert first["request_id"] != again["request_id"]
    await wait_all_tasks_blocked()
    assert flow.runs == [{"a": 1}]


async def test_the_same_session_gets_no_event_twice(flow: Flow, peer: Peer, autojump_clock) -> None:
    """While the job runs, the submitting session gets only the acceptance again."""
    job = await peer.submit("tap", idempotency_key="k")
    await flow.tap.let_out(3)
    await read_to(peer, 3)
    for _ in range(3):
        assert same(job, await peer.submit("tap", idempotency_key="k"))
    await wait_all_tasks_blocked()
    assert peer.seen == []
    await flow.tap.let_out(1)
    await flow.tap.shut()
    assert (await peer.until_terminal(job["job_id"]))["event_seq"] == 5
    assert flow.tap.runs == 1


async def test_a_resumed_session_is_the_same_session(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """After a resume, the same submit brings the acceptance and no event twice."""
    job = await peer.submit("tap", idempotency_key="k")
    await flow.tap.let_out(3)
    await read_to(peer, 3)
    await peer.drop()
    again = await flow.resumed(peer)
    assert (await again.submit("tap", idempotency_key="k"))["job_id"] == job["job_id"]
    await flow.tap.shut()
    assert (await again.until_terminal(job["job_id"]))["event_seq"] == 4
    assert flow.tap.runs == 1


# -- another session


@pytest.mark.spec("7.2-1", "1.0/7.2-2")
async def test_another_session_gets_the_events_from_the_first(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """Another session gets a running job's events from the first, in its own numbers."""
    first = await peer.submit("tap", idempotency_key="k")
    await flow.tap.let_out(5)
    other = await flow.welcomed()
    own = await other.submit("echo")
    await other.until_terminal(own["job_id"])
    again = await other.submit("tap", idempotency_key="k")
    assert same(first, again)
    await flow.tap.let_out(5)
    await flow.tap.shut()
    assert (await other.until_terminal(first["job_id"]))["event_seq"] == 12
    assert (await peer.until_terminal(first["job_id"]))["event_seq"] == 11
    ours, theirs = (
        flow.recorder.events(first["job_id"], session_id=each.session_id) for each in (peer, other)
    )
    assert [frame["payload"] for frame in ours] == [frame["payload"] for frame in theirs]
    assert len(ours) == 10
    assert flow.tap.runs == 1


@pytest.mark.spec("1.0/7.2-3")
async def test_another_session_gets_the_terminal_of_a_finished_job(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """Another session gets acceptance and terminal of an ended job, without its events."""
    first = await peer.submit("tap", idempotency_key="k")
    await flow.tap.let_out(5)
    await flow.tap.shut()
    end = await peer.until_terminal(first["job_id"])
    other = await flow.welcomed()
    assert same(first, await other.submit("tap", idempotency_key="k"))
    repeated = await other.until_terminal(first["job_id"])
    assert repeated["payload"] == end["payload"]
    assert repeated["event_seq"] == 1
    assert flow.recorder.events(first["job_id"], session_id=other.session_id) == []
    own = await other.submit("echo")
    assert (await other.until_terminal(own["job_id"]))["event_seq"] == 2
    assert flow.tap.runs == 1


@pytest.mark.parametrize("how", ["cancelled", "error"])
@pytest.mark.spec("1.0/7.2-3")
async def test_every_kind_of_terminal_is_repeated(
    flow: Flow, peer: Peer, autojump_clock, how: str
) -> None:
    """A job that failed or was cancelled keeps its key, and its terminal is repeated."""
    if how == "cancelled":
        first = await peer.submit("sleeper", idempotency_key="k")
        await peer.send("job.cancel", {"job_id": first["job_id"]})
        agent = "sleeper"
    else:
        agent = "failing"

        @flow.runtime.agent(agent)
        async def failing(_: object) -> Json:
            raise InvalidRequest("no")

        first = await peer.submit(agent, idempotency_key="k")
    end = await peer.until_terminal(first["job_id"])
    assert end["payload"]["final_status"] == how
    other = await flow.welcomed()
    assert same(first, await other.submit(agent, idempotency_key="k"))
    assert (await other.until_terminal(first["job_id"]))["payload"] == end["payload"]


async def test_another_submitter_may_cancel(flow: Flow, peer: Peer, autojump_clock) -> None:
    """Every submitter of a job may cancel it, and all of them hear of its end."""
    first = await peer.submit("sleeper", idempotency_key="k")
    other = await flow.welcomed()
    await other.submit("sleeper", idempotency_key="k")
    await other.send("job.cancel", {"job_id": first["job_id"]})
    await other.expect("job.cancelled", job_id=first["job_id"])
    for each in (other, peer):
        end = await each.until_terminal(first["job_id"])
        assert end["payload"]["final_status"] == "cancelled"


async def test_another_submitter_may_cancel_before_the_start(autojump_clock) -> None:
    """A job that is cancelled while its first acceptance waits in line never begins."""
    async with open_flow(SlowKeys({"slow": 100}), cancel_grace_seconds=5) as flow:
        peer, other = await flow.welcomed(), await flow.welcomed()
        await peer.send("job.submit", {"agent": "echo", "idempotency_key": "slow"})
        await peer.send("job.submit", {"agent": "sleeper", "input": 1, "idempotency_key": "k"})
        await wait_all_tasks_blocked()
        job_id = (await other.submit("sleeper", 1, idempotency_key="k"))["job_id"]
        await other.send("job.cancel", {"job_id": job_id})
        await other.until_terminal(job_id)
        peer.patience = 200
        end = await peer.until_terminal(job_id)
        assert end["payload"]["final_status"] == "cancelled"
        assert flow.runs == [None]
        row = await flow.store.job(job_id)
        assert row is not None
        assert row.status == "cancelled"


async def test_another_submitter_resumes_what_it_was_sent(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """The second submitter's session can be resumed like the first one's."""
    job = await peer.submit("tap", idempotency_key="k")
    await flow.tap.let_out(5)
    other = await flow.welcomed()
    await other.submit("tap", idempotency_key="k")
    await read_to(other, 3)
    await other.drop()
    await wait_all_tasks_blocked()
    await flow.tap.let_out(5)
    await flow.tap.shut()
    again = await flow.resumed(other, 2)
    assert (await again.until_terminal(job["job_id"]))["event_seq"] == 11


async def test_another_submitter_outlives_the_first(autojump_clock) -> None:
    """After the first submitter's session expired, the second one may still cancel."""
    async with open_flow(resume_window_seconds=10) as flow:
        peer, other = await flow.welcomed(), await flow.welcomed()
        job = await peer.submit("sleeper", idempotency_key="k")
        await other.submit("sleeper", idempotency_key="k")
        await peer.drop()
        await trio.sleep(60)
        third = await flow.welcomed()
        await third.send("job.cancel", {"job_id": job["job_id"]})
        await third.expect("session.error", code="PERMISSION_DENIED")
        await other.send("job.cancel", {"job_id": job["job_id"]})
        await other.until_terminal(job["job_id"])


# -- another principal


@pytest.mark.spec("1.0/7.2-1")
async def test_a_key_is_its_principals(flow: Flow, peer: Peer, autojump_clock) -> None:
    """Another principal with the same key gets a job of its own, and no hint of the first."""
    first = await peer.submit("echo", "alice's", idempotency_key="k")
    bob = await flow.welcomed(token=BOB)
    own = await bob.submit("echo", "bob's", idempotency_key="k")
    assert own["job_id"] != first["job_id"]
    end = await bob.until_terminal(own["job_id"])
    assert end["payload"]["result"] == "bob's"
    request = await bob.send("job.cancel", {"job_id": first["job_id"]})
    with pytest.raises(JobNotFound):
        await bob.answer("job.cancelled", request)
    same_input = await bob.submit("echo", "alice's", idempotency_key="l")
    assert same_input["job_id"] not in (first["job_id"], own["job_id"])
