"""The same submit again in the same session, after its job has ended (1.0 §7.2)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.testing import Peer
from tests.flow.support import Flow, open_flow, read_to, same
from tests.slow_stores import SlowStore


@pytest.mark.spec("7.2-1", "1.0/7.2-3")
async def test_the_terminal_is_said_again(flow: Flow, peer: Peer, autojump_clock) -> None:
    """Each repeat brings the acceptance and then the terminal, with the next number."""
    first = await peer.submit("tap", idempotency_key="k")
    await flow.tap.let_out(3)
    await flow.tap.shut()
    end = await peer.until_terminal(first["job_id"])
    assert end["event_seq"] == 4
    peer.seen.clear()
    for number in (5, 6, 7):
        assert same(first, await peer.submit("tap", idempotency_key="k"))
        again = await peer.until_terminal(first["job_id"])
        assert again["event_seq"] == number
        assert again["payload"] == end["payload"]
    own = await peer.submit("echo")
    assert (await peer.until_terminal(own["job_id"]))["event_seq"] == 8
    assert peer.seen == []
    assert flow.tap.runs == 1


async def test_repeats_in_a_row_share_a_terminal(flow: Flow, peer: Peer, autojump_clock) -> None:
    """Of repeats that come at once, each is accepted, and a terminal follows the last of them."""
    job = await peer.submit("echo", 1, idempotency_key="k")
    await peer.until_terminal(job["job_id"])
    for _ in range(3):
        await peer.send("job.submit", {"agent": "echo", "input": 1, "idempotency_key": "k"})
    own = await peer.submit("echo", 2)
    await peer.until_terminal(own["job_id"])
    types = [frame["type"] for frame in peer.seen if frame["job_id"] == job["job_id"]]
    assert types.count("job.accepted") == 3
    assert types[-1] == "job.result"
    assert flow.runs == [1, 2]


@pytest.mark.parametrize("after", [1, 2])
async def test_a_resume_replays_what_was_said_again(
    flow: Flow, peer: Peer, autojump_clock, after: int
) -> None:
    """A resume repeats the terminals that the client has not seen, with their numbers."""
    job = await peer.submit("echo", 1, idempotency_key="k")
    await peer.until_terminal(job["job_id"])
    for _ in range(2):
        await peer.submit("echo", 1, idempotency_key="k")
        await peer.until_terminal(job["job_id"])
    await peer.drop()
    again = await flow.resumed(peer, after)
    numbered = await read_to(again, 3)
    assert [frame["event_seq"] for frame in numbered] == [2, 3][after - 1 :]
    assert {frame["job_id"] for frame in numbered} == {job["job_id"]}
    repeated = await again.submit("echo", 1, idempotency_key="k")
    assert same(job, repeated)
    assert (await again.until_terminal(job["job_id"]))["event_seq"] == 4


async def test_a_drop_before_the_repeat_arrives(autojump_clock) -> None:
    """A repeat whose connection ends at once is answered by the resume."""
    async with open_flow(SlowStore(1)) as flow:
        peer = await flow.welcomed()
        job = await peer.submit("echo", 1, idempotency_key="k")
        await peer.until_terminal(job["job_id"])
        await peer.send("job.submit", {"agent": "echo", "input": 1, "idempotency_key": "k"})
        await wait_all_tasks_blocked()
        await peer.drop()
        await trio.sleep(30)
        again = await flow.resumed(peer, 1)
        await again.expect("job.accepted", job_id=job["job_id"])
        assert (await again.until_terminal(job["job_id"]))["event_seq"] == 2


async def test_a_session_that_is_behind_gets_one_terminal(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """A repeat in a session that is still owed events brings none of them twice."""
    job = await peer.submit("tap", idempotency_key="k")
    await flow.tap.let_out(3)
    await read_to(peer, 3)
    await peer.drop()
    await flow.tap.shut()
    again = await flow.resumed(peer, 1)
    request = await again.send("job.submit", {"agent": "tap", "idempotency_key": "k"})
    own = await again.submit("echo")
    await again.until_terminal(own["job_id"])
    seen = [frame for frame in again.seen if frame["job_id"] == job["job_id"]]
    types = [frame["type"] for frame in seen]
    assert types.count("job.event") == 2
    accepted = [frame["payload"].get("request_id") for frame in seen].index(request)
    assert "job.result" in types[accepted:]


@pytest.mark.parametrize("pause", range(6))
async def test_a_repeat_while_the_job_ends(autojump_clock, pause: int) -> None:
    """Whenever a repeat comes, a terminal follows its acceptance."""
    async with open_flow(SlowStore(1)) as flow:
        peer = await flow.welcomed()
        payload = {"agent": "tap", "idempotency_key": "k"}
        job = await peer.submit(**payload)
        await flow.tap.shut()
        await trio.sleep(pause / 2)
        await peer.send("job.submit", payload)
        await trio.sleep(60)
        await peer.send("session.list_jobs", {})
        await peer.expect("session.error")  # not negotiated: everything before it has come
        types = [f["type"] for f in peer.seen if f.get("job_id") == job["job_id"]]
        assert types[-1] == "job.result"
        assert types.count("job.accepted") == 1
        assert flow.tap.runs == 1


async def test_history_begins_where_it_was_first_numbered(
    flow: Flow, peer: Peer, autojump_clock
) -> None:
    """Numbers of a terminal that is said again change no subscriber's history."""
    job = await peer.submit("tap", idempotency_key="k")
    await flow.tap.let_out(2)
    await flow.tap.shut()
    await peer.until_terminal(job["job_id"])
    for _ in range(3):
        await peer.submit("tap", idempotency_key="k")
        await peer.until_terminal(job["job_id"])
    for after, replayed in [(0, 3), (1, 2), (2, 1), (3, 0), (5, 0), (6, 0)]:
        other = await flow.welcomed(features=("subscribe",))
        asked = {"job_id": job["job_id"], "history": True, "from_event_seq": after}
        await other.send("job.subscribe", asked)
        subscribed = await other.expect("job.subscribed")
        assert subscribed["payload"]["subscribed_from"] == replayed
        if replayed:
            assert (await other.until_terminal(job["job_id"]))["event_seq"] == replayed
