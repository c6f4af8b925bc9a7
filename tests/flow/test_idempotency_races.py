"""Submits under one idempotency key at the same time (§7.2)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.runtime.session.judge import Decision, Judge
from arcp_trio.runtime.session.submission import Submission
from arcp_trio.testing import Peer
from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import JsonObject
from tests.flow.support import Flow, open_flow, same
from tests.slow_stores import SlowStore


@pytest.mark.spec("7.2-1", "1.0/7.2-1")
async def test_fifty_at_once_are_one_job(flow: Flow, autojump_clock) -> None:
    """Fifty identical submits of two sessions make one job, with one acceptance each."""
    peers = [await flow.welcomed(), await flow.welcomed()]
    requests = [
        (peer, await peer.send("job.submit", {"agent": "echo", "idempotency_key": "k"}))
        for _ in range(25)
        for peer in peers
    ]
    answers = [await peer.answer("job.accepted", request) for peer, request in requests]
    assert all(same(answers[0], answer) for answer in answers)
    for peer in peers:
        await peer.until_terminal(answers[0]["job_id"])
        first = flow.recorder.terminal(answers[0]["job_id"], session_id=peer.session_id)
        assert first is not None
        assert first["event_seq"] == 1
    assert len(flow.runs) == 1


async def test_a_retry_waits_for_a_first_that_takes_long(autojump_clock) -> None:
    """A retry does not overtake the first acceptance while that is being stored."""
    async with open_flow(SlowStore(1)) as flow:
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
        assert order == []  # expect() skipped none: the answers came in the order of the submits
        assert flow.runs == [None]


@pytest.mark.spec("7.2-2")
async def test_one_of_two_different_submits_wins(flow: Flow, autojump_clock) -> None:
    """If two conflicting submits arrive at once, one makes a job and the other is refused."""
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
    """Submits that wait for a refused one are decided on their own."""
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
    """A key of a submit refused at a limit may be used again, even with other input."""
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


async def test_a_repeat_that_waits_for_its_turn(
    flow: Flow, autojump_clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose key is repeated ends in the meantime: its events do not come again."""
    decide, slow = Judge.decide, {"first": 10, "third": 30}

    async def decide_late(judge: Judge, submission: Submission) -> Decision:
        await trio.sleep(slow.get(str(submission.submit.idempotency_key), 0))
        return await decide(judge, submission)

    monkeypatch.setattr(Judge, "decide", decide_late)
    peer = await flow.welcomed()
    requests = [
        await peer.send("job.submit", {"agent": agent, "idempotency_key": key})
        for agent, key in (
            ("echo", "first"),
            ("tap", "second"),
            ("echo", "third"),
            ("tap", "second"),
        )
    ]
    job_id = (await peer.answer("job.accepted", requests[1]))["job_id"]
    await flow.tap.let_out(3)
    await flow.tap.shut()
    await peer.until_terminal(job_id)
    assert (await peer.answer("job.accepted", requests[3]))["job_id"] == job_id
    await peer.until_terminal(job_id)
    assert len(flow.recorder.events(job_id)) == 3
