"""What a subscription brings: the answer, history, live events, then the end (§7.6)."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, JobError
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json, JsonObject
from tests.flow.observing import Scene, listing, open_scene, said, settled, subscribe, watched
from tests.reading import numbers, until_end

# -- history and live


@pytest.mark.spec("7.6-1", "7.6-3", "7.6-8")
async def test_history_then_live_then_the_end(scene: Scene) -> None:
    """The answer comes before history, that before live events, and each event comes once."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 4)
    answer = await subscribe(watcher, job_id, history=True, from_event_seq=0)
    assert not numbers(watcher.seen), "something came before the answer"
    assert answer["replayed"] is True
    assert answer["subscribed_from"] == 4
    await scene.say(job_id, 2)
    await scene.end(owner, job_id)
    frames = await until_end(watcher, job_id)
    assert said(frames) == ["0", "1", "2", "3", "4", "5", "job.result"]
    assert numbers(frames) == [1, 2, 3, 4, 5, 6, 7]
    assert frames[-1]["payload"]["final_status"] == "success"


@pytest.mark.spec("7.6-3")
async def test_history_is_what_was_sent_before(scene: Scene) -> None:
    """A replayed event is the submitter's with its old time, but for session and number."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    other = await owner.submit("echo")
    await owner.until_terminal(other["job_id"])
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 2)
    await settled(owner)
    await subscribe(watcher, job_id, history=True)
    replayed = [await watcher.receive() for _ in range(2)]

    def bare(frame: Frame) -> Frame:
        return {n: v for n, v in frame.items() if n not in ("session_id", "event_seq")}

    assert [bare(frame) for frame in replayed] == [
        bare(f) for f in scene.recorder.events(job_id, session_id=str(owner.session_id))
    ]


@pytest.mark.spec("7.6-3")
@pytest.mark.parametrize("left", ["attached", "acknowledged", "dropped", "closed"])
async def test_from_a_number_of_the_submitter(scene: Scene, left: str) -> None:
    """`from_event_seq` is a number of the submitting session, and excludes that event.

    If another job's event has that number, history begins with this job's next event.
    """
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    one, two = [(await owner.submit("teller"))["job_id"] for _ in range(2)]
    for _ in range(10):
        await scene.say(one)
        await scene.say(two)
    await settled(owner)
    if left == "acknowledged":
        await owner.send("session.ack", {"last_processed_seq": 20})
        await settled(owner)
    elif left == "dropped":
        await owner.drop()
    elif left == "closed":
        await owner.send("session.close")
        await owner.expect("session.closed")
    await scene.store.flushed()
    for after, first in ((20, None), (19, None), (18, 9), (5, 3), (4, 2)):
        answer = await subscribe(watcher, one, history=True, from_event_seq=after)
        due = [] if first is None else [str(number) for number in range(first, 10)]
        assert answer["replayed"] is bool(due)
        assert said([await watcher.receive() for _ in due]) == due
        await watcher.send("job.unsubscribe", {"job_id": one})
    assert not said(await settled(watcher)), "more than that"


async def test_from_a_number_of_a_session_whose_window_is_over(autojump_clock: MockClock) -> None:
    """The submitter's numbers can be named even after its session has expired."""
    async with open_scene(resume_window_seconds=10) as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        await scene.say(job_id, 5)
        await settled(owner)
        await owner.drop()
        await trio.sleep(30)
        assert await scene.store.session(str(owner.session_id)) is None
        await scene.say(job_id, 2)  # the session was parked: these have no numbers
        await subscribe(watcher, job_id, history=True, from_event_seq=3)
        assert said([await watcher.receive() for _ in range(4)]) == ["3", "4", "5", "6"]


@pytest.mark.spec("7.6-4")
@pytest.mark.parametrize("fields", [{}, {"history": False}, {"from_event_seq": 0}])
async def test_without_history_only_what_comes(scene: Scene, fields: JsonObject) -> None:
    """Without `history`, even with a number, only later events come."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 3)
    answer = await subscribe(watcher, job_id, **fields)
    assert answer["replayed"] is False
    assert answer["subscribed_from"] == 0
    await scene.say(job_id, 2)
    await scene.end(owner, job_id)
    assert said(await until_end(watcher, job_id)) == ["3", "4", "job.result"]


# -- one's own numbers


@pytest.mark.spec("7.6-8", "8.3-1")
async def test_observed_jobs_share_the_numbers_of_ones_own(scene: Scene) -> None:
    """Events of observed jobs and of the session's own job share one sequence."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    jobs = [(await owner.submit("teller"))["job_id"] for _ in range(2)]
    own = (await watcher.submit("teller"))["job_id"]
    for job_id in jobs:
        await subscribe(watcher, job_id)
    for count in range(5):
        for job_id in (*jobs, own):
            await scene.say(job_id, count)
    for job_id in jobs:
        await scene.end(owner, job_id)
    await scene.end(watcher, own)
    frames = await settled(watcher)
    seen = sorted(numbers([*frames, *[await watcher.until_terminal(each) for each in jobs]]))
    assert len(set(seen)) == 3 * 10 + 2
    for job_id in (*jobs, own):
        events = scene.recorder.events(job_id, session_id=str(watcher.session_id))
        assert said(events) == [str(number) for number in range(10)]


async def test_subscribed_from_is_the_number_before_the_first(scene: Scene) -> None:
    """`subscribed_from` is the number of the session's last event before the answer."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    own = (await watcher.submit("teller"))["job_id"]
    job_id = (await owner.submit("teller"))["job_id"]
    for _ in range(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.say, own, 7)
            answer = await subscribe(watcher, job_id)
        assert answer["subscribed_from"] == max(numbers(watcher.seen), default=0)
        await watcher.send("job.unsubscribe", {"job_id": job_id})


# -- the end


@pytest.mark.parametrize("ends", ["success", "error", "cancelled", "timed_out"])
@pytest.mark.parametrize("live", [True, False])
async def test_every_end_is_seen(ends: str, *, live: bool, autojump_clock: MockClock) -> None:
    """A subscriber gets the same terminal as the submitter, live or from history."""
    async with open_scene() as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()

        @scene.runtime.agent("later")
        async def later(job: JobContext) -> Json:
            await trio.sleep(1 if job.input in ("success", "error") else 10)
            if job.input == "error":
                raise JobError("as told")
            return job.input

        bound: JsonObject = {"max_runtime_sec": 5} if ends == "timed_out" else {}
        job_id = (await owner.submit("later", ends, **bound))["job_id"]
        if live:
            await subscribe(watcher, job_id)
        if ends == "cancelled":
            await owner.send("job.cancel", {"job_id": job_id})
        end = await owner.until_terminal(job_id)
        if not live:
            assert (await subscribe(watcher, job_id, history=True))["replayed"] is True
        seen = await watcher.until_terminal(job_id)
        assert seen["payload"] == end["payload"]
        assert seen["payload"]["final_status"] == ends


@pytest.mark.spec("7.6-3", "7.6-4")
async def test_a_job_that_has_ended(scene: Scene) -> None:
    """With history an ended job is sent whole; without, the answer has its final status."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 3)
    await scene.end(owner, job_id)
    answer = await subscribe(watcher, job_id)
    assert answer["current_status"] == "success"
    assert answer["replayed"] is False
    assert answer["subscribed_from"] == 0
    assert not numbers(await settled(watcher))
    answer = await subscribe(watcher, job_id, history=True, from_event_seq=1)
    assert answer["replayed"] is True
    assert answer["subscribed_from"] == 3
    assert said(await until_end(watcher, job_id)) == ["1", "2", "job.result"]
    answer = await subscribe(watcher, job_id, history=True, from_event_seq=4)
    assert answer["replayed"] is False
    assert not await watched(scene, watcher)


# -- the descriptor

LEASE: JsonObject = {"tool.call": ["search.*"], "cost.budget": ["USD:5.00"]}


@pytest.mark.spec("7.6-5")
async def test_the_descriptor(scene: Scene) -> None:
    """The answer has status, agent, lease, expiry, budget, parent and trace, and no secrets."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()

    @scene.runtime.agent("spender")
    async def spender(job: JobContext) -> None:
        await job.metric("cost.search", 1.42, unit="USD")
        await stop.wait()
        await job.metric("cost.search", 0.5, unit="USD")

    stop = trio.Event()
    constraints: JsonObject = {"expires_at": "2199-01-01T00:00:00Z"}
    fields: JsonObject = {"lease_request": LEASE, "lease_constraints": constraints}
    job = await owner.submit("spender", **fields)
    await owner.expect("job.event")
    expected: JsonObject = {
        "job_id": job["job_id"],
        "current_status": "running",
        "agent": job["agent"],
        "lease": LEASE,
        "lease_constraints": constraints,
        "budget": {"USD": 3.58},
        "parent_job_id": None,
        "trace_id": job["trace_id"],
        "subscribed_from": 0,
        "replayed": False,
    }
    answer = await subscribe(watcher, job["job_id"])
    assert {**answer, "request_id": ...} == {**expected, "request_id": ...}
    stop.set()
    await owner.until_terminal(job["job_id"])
    await watcher.until_terminal(job["job_id"])
    answer = await subscribe(watcher, job["job_id"])
    expected |= {"current_status": "success", "budget": {"USD": 3.08}, "subscribed_from": 3}
    assert {**answer, "request_id": ...} == {**expected, "request_id": ...}
    bare = await owner.submit("echo")
    await owner.until_terminal(bare["job_id"])
    answer = await subscribe(watcher, bare["job_id"])
    assert "budget" not in answer
    assert "lease_constraints" not in answer
    assert answer["lease"] == {}


async def test_the_descriptor_of_a_child(scene: Scene) -> None:
    """The answer for a child names its parent and its trace."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()

    @scene.runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        child = await job.delegate("echo", "hi")
        return await child.result()

    job = await owner.submit("parent", lease_request={"agent.delegate": ["echo"]})
    child = (await owner.expect("job.accepted"))["payload"]
    await owner.until_terminal(job["job_id"])
    answer = await subscribe(watcher, child["job_id"], history=True)
    assert answer["parent_job_id"] == job["job_id"]
    assert answer["trace_id"] == job["trace_id"]
    assert said(await until_end(watcher, child["job_id"])) == ["job.result"]
    answer = await subscribe(owner, child["job_id"])
    assert answer["replayed"] is False, "it was its submitter's"
    await subscribe(watcher, job["job_id"], history=True)
    frames = await until_end(watcher, job["job_id"])
    assert {frame["job_id"] for frame in frames} == {job["job_id"]}, "the child came unasked for"


async def test_nothing_is_lost_or_doubled_between_history_and_live() -> None:
    """200 subscriptions to a job that never pauses each get every event once and in order."""
    async with open_scene() as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        stop = trio.Event()

        @scene.runtime.agent("endless")
        async def endless(job: JobContext) -> int:
            n = 0
            while not stop.is_set():
                await job.log(str(n))
                await trio.lowlevel.checkpoint()
                n += 1
            return n

        job_id = (await owner.submit("endless"))["job_id"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_to_end, owner, job_id)
            for _ in range(200):
                (entry,) = (await listing(watcher))["jobs"]
                after = max(0, entry["last_event_seq"] - random.randrange(20))
                answer = await subscribe(watcher, job_id, history=True, from_event_seq=after)
                assert not said(watcher.seen)
                frames = [await watcher.receive() for _ in range(10 + random.randrange(60))]
                assert said(frames) == [str(after + n) for n in range(len(frames))], answer
                await watcher.send("job.unsubscribe", {"job_id": job_id})
                await settled(watcher)
                watcher.seen.clear()
            await subscribe(watcher, job_id, history=True)
            stop.set()
            frames = await until_end(watcher, job_id)
        assert said(frames) == [*map(str, range(len(frames) - 1)), "job.result"]
        assert frames[-1]["payload"]["result"] == len(frames) - 1


async def read_to_end(peer: Peer, job_id: str) -> None:
    """Read all the time, until a job ends."""
    await until_end(peer, job_id)
