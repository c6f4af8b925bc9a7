"""The same submit again: one job, one acceptance, and who gets its events (§7.2)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.store.memory import MemoryStore
from arcp_trio.store.records import KeyRow
from arcp_trio.store.writes import Write
from arcp_trio.testing import Peer
from arcp_trio.wire.errors import ArcpError, DuplicateKey, InvalidRequest, JobNotFound
from arcp_trio.wire.json import Json, JsonObject
from tests.flow.support import BOB, Flow, open_flow, read_to

DAY = 86_400


@pytest.fixture
async def flow() -> AsyncGenerator[Flow, None]:
    """A runtime with the default limits."""
    async with open_flow() as opened:
        yield opened


@pytest.fixture
async def peer(flow: Flow) -> Peer:
    """A peer with a session."""
    return await flow.welcomed()


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


def same(one: JsonObject, other: JsonObject) -> bool:
    """Whether two acceptances are the same but for the request they answer."""
    return one | {"request_id": None} == other | {"request_id": None}


async def submit_raw(peer: Peer, payload: str) -> JsonObject:
    """Submit with a payload in these very characters; return the acceptance's.

    Raises:
        ArcpError: the class of the refusal's code.
    """
    request = f"raw {trio.current_time()} {len(peer.seen)}"
    await peer.send_raw(
        f'{{"arcp":"1.1","id":"{request}","type":"job.submit",'
        f'"session_id":"{peer.session_id}","payload":{payload}}}'
    )
    return await peer.answer("job.accepted", request)


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


# -- what the same parameters are


FIELDS: JsonObject = {"agent": "echo@1.0.0", "input": {"a": 1}, "idempotency_key": "k"}


@pytest.mark.spec("7.2-2", "1.0/7.2-4")
@pytest.mark.parametrize(
    "change",
    [
        {"agent": "sleeper"},
        {"agent": "echo@2.0.0"},
        {"input": {"a": 2}},
        {"lease_request": {"tool.call": ["search.*"]}},
        {"lease_constraints": {"expires_at": "2100-01-01T00:00:00Z"}},
        {"max_runtime_sec": 60},
        {"agent": "echo"},
        {"agent": "nobody"},
        {"input": {"a": True}},
        {"input": {"a": "1"}},
        {"input": {"a": 1, "b": None}},
        {"input": None},
    ],
    ids=str,
)
async def test_one_other_field_is_a_conflict(
    flow: Flow, peer: Peer, autojump_clock, change: JsonObject
) -> None:
    """A known key with any other parameter is refused, and the first job is not touched by it."""
    first = await submit(peer, FIELDS)
    with pytest.raises(DuplicateKey) as refused:
        await submit(peer, FIELDS | change)
    assert not refused.value.retryable
    other = await flow.welcomed()
    with pytest.raises(DuplicateKey):
        await submit(other, FIELDS | change)
    assert same(first, await submit(peer, FIELDS))
    await wait_all_tasks_blocked()
    assert flow.runs == [{"a": 1}]


async def submit(peer: Peer, fields: JsonObject) -> JsonObject:
    """Submit with these fields; return the acceptance."""
    return await peer.answer("job.accepted", await peer.send("job.submit", fields))


@pytest.mark.spec("7.2-1")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('{"a": 1, "b": [2, {"c": 3, "d": 4}]}', '{"b":[2,{"d":4,"c":3}],"a":1}'),
        ("1.0", "1"),
        ("[100, 0, 0.5]", "[1e2, -0.0, 5E-1]"),
        ('"\\u00fc\\ud83d\\ude00/"', '"ü😀\\/"'),
        ("null", None),
        ("1e300", "1.0E+300"),
        ("9007199254740992", "9007199254740992.0"),
    ],
)
async def test_other_words_for_the_same(
    flow: Flow, peer: Peer, autojump_clock, one: str, other: str | None
) -> None:
    """Order of keys, whitespace, escapes, the way a number is written: the same submit."""
    first = await submit_raw(peer, f'{{"agent":"echo","idempotency_key":"k","input":{one}}}')
    rest = "" if other is None else f'"input" : {other},'
    again = await submit_raw(peer, f'{{ {rest} "idempotency_key":"k", "agent":"\\u0065cho" }}')
    assert same(first, again)
    await wait_all_tasks_blocked()
    assert len(flow.runs) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"lease_request": {}, "lease_constraints": {}},
        {"lease_request": None, "lease_constraints": None, "max_runtime_sec": None},
        {"lease_constraints": {"expires_at": None}},
        {"parent_job_id": "job_1", "delegate_id": "d", "unknown": {"x": 1}},
    ],
    ids=str,
)
async def test_what_is_as_good_as_absent(peer: Peer, autojump_clock, fields: JsonObject) -> None:
    """Null, empty and unknown fields make no difference, nor does another trace."""
    first = await submit(peer, FIELDS)
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    request = await peer.send("job.submit", FIELDS | fields, trace_id=trace_id)
    assert same(first, await peer.answer("job.accepted", request))


@pytest.mark.parametrize(
    "number",
    [
        "1e300",
        "-1.7976931348623157e308",
        "5e-324",
        "1e19",
        "-1e19",
        "9223372036854775807",
        "-9223372036854775808",
        "1e22",
        "123456789012345678e5",
    ],
)
async def test_every_number_there_is_can_be_submitted_with_a_key(
    flow: Flow, peer: Peer, autojump_clock, number: str
) -> None:
    """Numbers at the edges of what floats and integers hold are compared as any other."""
    text = f'{{"agent":"echo","idempotency_key":"k","input":{{"n":[{number}]}}}}'
    first = await submit_raw(peer, text)
    assert same(first, await submit_raw(peer, text))
    with pytest.raises(DuplicateKey):
        await submit_raw(peer, text.replace(number, "1"))
    await peer.until_terminal(first["job_id"])
    await wait_all_tasks_blocked()
    assert len(flow.runs) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (9007199254740993, 9007199254740992.0),
        ("Aa", "BB"),  # the same in 31-polynomial string hashes
        ([-1], [-2]),  # the same to Python's hash
        ([0], [False]),
        ([[]], [{}]),
        ("a\u0000", "a"),
    ],
)
@pytest.mark.spec("7.2-2")
async def test_nearly_the_same_is_another(
    peer: Peer, autojump_clock, one: Json, other: Json
) -> None:
    """Values that weak hashes or loose comparison take for equal are a conflict."""
    await peer.submit("echo", one, idempotency_key="k")
    with pytest.raises(DuplicateKey):
        await peer.submit("echo", other, idempotency_key="k")


@pytest.mark.parametrize("key", ["", 5, True, [], {}])
async def test_what_is_no_key(flow: Flow, peer: Peer, autojump_clock, key: Json) -> None:
    """A key that is not a text with something in it is refused, rather than ignored."""
    with pytest.raises(InvalidRequest, match="idempotency_key"):
        await peer.submit("echo", idempotency_key=key)
    await wait_all_tasks_blocked()
    assert flow.runs == []


async def test_without_a_key_every_submit_is_a_job(flow: Flow, peer: Peer, autojump_clock) -> None:
    """A missing key and a null one protect from nothing."""
    jobs = [
        await peer.submit("echo", 1),
        await peer.submit("echo", 1),
        await peer.submit("echo", 1, idempotency_key=None),
    ]
    assert len({job["job_id"] for job in jobs}) == 3


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
        assert flow.runtime._core.jobs.live == {}


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
