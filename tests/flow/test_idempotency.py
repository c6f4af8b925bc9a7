"""The same submit again: one job, one acceptance, and who gets its events (§7.2)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.store.memory import MemoryStore
from arcp_trio.store.records import KeyRow
from arcp_trio.store.writes import Write
from arcp_trio.testing import Peer
from arcp_trio.wire.errors import ArcpError, DuplicateKey, InvalidRequest, JobNotFound
from arcp_trio.wire.json import Json, JsonObject
from tests.flow.support import Flow, open_flow, read_to, same
from tests.inside import live_jobs
from tests.stage import BOB

DAY = 86_400


class SlowStore(MemoryStore):
    """A store in which every commit takes a second."""

    async def _commit(self, writes: Sequence[Write]) -> None:
        await trio.sleep(1)
        await super()._commit(writes)


class SlowKey(MemoryStore):
    """A store that takes its time to look for one key."""

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        """What the key stands for."""
        if key == "slow":
            await trio.sleep(100)
        return await super().key(principal, key, now)


# -- the same session


@pytest.mark.spec("7.2-1", "1.0/7.2-1")
async def test_the_same_submit_again_is_the_same_job(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """While it runs, however much later: the first acceptance, and nothing runs twice."""
    first = await peer.submit("sleeper", {"a": 1}, idempotency_key="k")
    await trio.sleep(60)
    again = await peer.submit("sleeper", {"a": 1}, idempotency_key="k")
    assert same(first, again)
    assert first["request_id"] != again["request_id"]
    await wait_all_tasks_blocked()
    assert flow.runs == [{"a": 1}]


async def test_the_same_session_gets_the_acceptance_only(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """It has the job's events already, or is owed them; the recorder would not take them twice."""
    job = await peer.submit("echo", 1, idempotency_key="k")
    await peer.until_terminal(job["job_id"])
    for _ in range(3):
        await peer.submit("echo", 1, idempotency_key="k")
    await wait_all_tasks_blocked()
    assert peer.seen == []
    other = await peer.submit("echo", 2)
    assert (await peer.until_terminal(other["job_id"]))["event_seq"] == 2
    assert flow.runs == [1, 2]


async def test_a_resumed_session_is_the_same_session(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """After a resume, the submit repeated brings the acceptance and no event a second time."""
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
    """A running job's history and what follows, in that session's own numbers."""
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
    """A job that has ended answers with its acceptance and its terminal, without its events."""
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
    assert same(first, await other.submit("tap", idempotency_key="k"))
    own = await other.submit("echo")
    assert (await other.until_terminal(own["job_id"]))["event_seq"] == 2
    assert flow.tap.runs == 1


@pytest.mark.parametrize("how", ["cancelled", "error"])
@pytest.mark.spec("1.0/7.2-3")
async def test_every_kind_of_terminal_is_repeated(
    flow: Flow, peer: Peer, autojump_clock, how: str
) -> None:
    """Also a job that failed or was cancelled keeps its key and its end."""
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
    """Who submitted a job, as the first or not, may end it; both hear of it."""
    first = await peer.submit("sleeper", idempotency_key="k")
    other = await flow.welcomed()
    await other.submit("sleeper", idempotency_key="k")
    await other.send("job.cancel", {"job_id": first["job_id"]})
    await other.expect("job.cancelled", job_id=first["job_id"])
    for each in (other, peer):
        end = await each.until_terminal(first["job_id"])
        assert end["payload"]["final_status"] == "cancelled"


async def test_another_submitter_may_cancel_before_the_start(autojump_clock) -> None:
    """A job that ends while its first acceptance still waits in line never begins."""
    async with open_flow(SlowKey(), cancel_grace_seconds=5) as flow:
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
    """The second session's stream survives its connection as the first one's does."""
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
    """When the first submitter's session is over, the other goes on and may still cancel."""
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
    """Another principal with the same key has its own job, and learns nothing of the first."""
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


# -- at the same time


@pytest.mark.spec("7.2-1", "1.0/7.2-1")
async def test_fifty_at_once_are_one_job(flow: Flow, autojump_clock) -> None:
    """Two sessions send the same submit without waiting: one run, one acceptance for each."""
    peers = [await flow.welcomed(), await flow.welcomed()]
    requests = [
        (peer, await peer.send("job.submit", {"agent": "echo", "idempotency_key": "k"}))
        for _ in range(25)
        for peer in peers
    ]
    answers = [await peer.answer("job.accepted", request) for peer, request in requests]
    assert all(same(answers[0], answer) for answer in answers)
    for peer in peers:
        end = await peer.until_terminal(answers[0]["job_id"])
        assert end["event_seq"] == 1
    assert len(flow.runs) == 1


async def test_a_retry_waits_for_a_first_that_takes_long(autojump_clock) -> None:
    """While the first acceptance is being stored no retry overtakes it, and nothing runs."""
    async with open_flow(SlowStore()) as flow:
        peer, other = await flow.welcomed(), await flow.welcomed()
        payload: JsonObject = {"agent": "echo", "idempotency_key": "k"}
        first = await peer.send("job.submit", payload)
        await wait_all_tasks_blocked()
        requests = [await peer.send("job.submit", payload) for _ in range(3)]
        theirs = await other.send("job.submit", payload)
        await wait_all_tasks_blocked()
        assert flow.runs == []
        begun = trio.current_time()
        answers = [await peer.answer("job.accepted", request) for request in (first, *requests)]
        answers.append(await other.answer("job.accepted", theirs))
        assert all(same(answers[0], answer) for answer in answers)
        assert trio.current_time() > begun
        for each in (peer, other):
            await each.until_terminal(answers[0]["job_id"])
        order = [f["payload"]["request_id"] for f in peer.seen if f["type"] == "job.accepted"]
        assert order == []  # each came when it was expected: in the order of the submits
        assert flow.runs == [None]


@pytest.mark.spec("7.2-2")
async def test_one_of_two_different_submits_wins(flow: Flow, autojump_clock) -> None:
    """Of two conflicting submits at once one is a job, and the other is told."""
    peers = [await flow.welcomed(), await flow.welcomed()]
    for number, peer in enumerate(peers):
        await peer.send("job.submit", {"agent": "echo", "input": number, "idempotency_key": "k"})
    types = [(await peer.receive())["type"] for peer in peers]
    assert sorted(types) == ["job.accepted", "session.error"]
    await wait_all_tasks_blocked()
    assert len(flow.runs) == 1


async def test_a_refused_submit_leaves_its_key_to_those_that_wait(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """Submits that wait for one that is refused are decided on their own."""
    requests = [
        await peer.send("job.submit", {"agent": agent, "input": 1, "idempotency_key": "k"})
        for agent in ("nobody", "nobody", "echo", "echo")
    ]
    for request in requests[:2]:
        with pytest.raises(ArcpError) as refused:
            await peer.answer("job.accepted", request)
        assert refused.value.code == "AGENT_NOT_AVAILABLE"
    answers = [await peer.answer("job.accepted", request) for request in requests[2:]]
    assert same(*answers)
    await wait_all_tasks_blocked()
    assert flow.runs == [1]


async def test_a_submit_at_a_limit_leaves_its_key_free(autojump_clock) -> None:
    """A submit that was refused for want of room may be sent again, even with other input."""
    async with open_flow(jobs=1) as flow:
        peer = await flow.welcomed()
        job = await peer.submit("sleeper")
        for _ in range(2):
            with pytest.raises(ArcpError) as refused:
                await peer.submit("echo", 1, idempotency_key="k")
            assert refused.value.retryable
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        await peer.until_terminal(job["job_id"])
        job = await peer.submit("echo", 2, idempotency_key="k")
        await peer.until_terminal(job["job_id"])
        assert flow.runs == [None, 2]


# -- how long


async def test_a_key_expires(autojump_clock) -> None:
    """After its time, and the job's, the key is free for another job; before, it never is."""
    async with open_flow(idempotency_seconds=1_000, finished_job_seconds=10) as flow:
        peer = await flow.welcomed()
        first = await peer.submit("echo", 1, idempotency_key="k")
        await peer.until_terminal(first["job_id"])
        await trio.sleep(990)
        assert same(first, await peer.submit("echo", 1, idempotency_key="k"))
        with pytest.raises(DuplicateKey):
            await peer.submit("echo", 2, idempotency_key="k")
        await trio.sleep(20)
        second = await peer.submit("echo", 2, idempotency_key="k")
        assert second["job_id"] != first["job_id"]
        await peer.until_terminal(second["job_id"])
        assert flow.runs == [1, 2]


async def test_a_key_outlives_its_job(autojump_clock) -> None:
    """Past the job's retention a retry gets the same acceptance, and nothing runs again."""
    async with open_flow(idempotency_seconds=DAY, finished_job_seconds=0) as flow:
        peer = await flow.welcomed()
        first = await peer.submit("echo", 1, idempotency_key="k")
        await peer.until_terminal(first["job_id"])
        await trio.sleep(60)
        assert await flow.store.job(first["job_id"]) is None
        other = await flow.welcomed()
        for each in (peer, other):
            assert same(first, await each.submit("echo", 1, idempotency_key="k"))
            with pytest.raises(DuplicateKey):
                await each.submit("echo", 2, idempotency_key="k")
        await wait_all_tasks_blocked()
        assert flow.runs == [1]


@pytest.mark.parametrize("running", [True, False])
async def test_a_key_lives_at_least_as_long_as_its_job(autojump_clock, *, running: bool) -> None:
    """While its job runs or is retained, no key is free, however short keys live."""
    async with open_flow(idempotency_seconds=0, finished_job_seconds=1_000) as flow:
        peer = await flow.welcomed()
        agent = "sleeper" if running else "echo"
        first = await peer.submit(agent, 1, idempotency_key="k")
        await trio.sleep(900)
        assert same(first, await peer.submit(agent, 1, idempotency_key="k"))
        if running:
            await peer.send("job.cancel", {"job_id": first["job_id"]})
        await peer.until_terminal(first["job_id"])
        if running:
            await trio.sleep(990)
            assert same(first, await peer.submit(agent, 1, idempotency_key="k"))
        await trio.sleep(1_010)
        again = await peer.submit(agent, 1, idempotency_key="k")
        assert again["job_id"] != first["job_id"]


async def test_many_keys_leave_nothing_behind(autojump_clock) -> None:
    """Thousands of keys over simulated days: only those of the last lifetime are kept."""
    async with open_flow(
        idempotency_seconds=100, finished_job_seconds=50, unacked_frames=100
    ) as flow:
        peer = await flow.welcomed()
        for number in range(2_000):
            job = await peer.submit("echo", number, idempotency_key=f"k{number}")
            await peer.until_terminal(job["job_id"])
            peer.seen.clear()
            await trio.sleep(1)
        assert isinstance(flow.store, MemoryStore)
        assert len(flow.store.tables.keys) <= 110
        assert len(flow.store.tables.journals) <= 60
        await trio.sleep(110)
        assert flow.store.tables.keys == {}
        assert flow.store.tables.journals == {}
        assert live_jobs(flow.runtime) == set()


async def test_repeats_do_not_grow_the_log(autojump_clock) -> None:
    """A thousand times the same submit of one session leave one acceptance to replay."""
    async with open_flow() as flow:
        peer = await flow.welcomed()
        job_ids = {
            (await peer.submit("echo", 1, idempotency_key="k"))["job_id"] for _ in range(1_000)
        }
        assert len(job_ids) == 1
        await peer.drop()
        again = await flow.resumed(peer, 0)
        await again.expect("job.result")
        assert [frame["type"] for frame in again.seen].count("job.accepted") == 1
