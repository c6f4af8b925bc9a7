"""Subscriptions to one's own job, repeated ones, and their ends (§7.6)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.flow.observing import Scene, listing, open_scene, said, settled, subscribe, watched
from tests.inside import hold_jobs
from tests.reading import numbers, until_end, up_to


@pytest.mark.spec("7.6-1", "7.6-3")
async def test_ones_own_job_again(scene: Scene) -> None:
    """History of one's own job is sent again, in new numbers; what is live then comes once."""
    owner = await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 3)
    answer = await subscribe(owner, job_id)
    assert (answer["replayed"], answer["subscribed_from"]) == (False, 3)
    answer = await subscribe(owner, job_id, history=True)
    assert (answer["replayed"], answer["subscribed_from"]) == (True, 6)
    answer = await subscribe(owner, job_id, history=True, from_event_seq=1)
    assert (answer["replayed"], answer["subscribed_from"]) == (True, 8)
    answer = await subscribe(owner, job_id, history=True, from_event_seq=3)
    assert answer["replayed"] is False
    await scene.say(job_id, 1)
    await owner.send("job.unsubscribe", {"job_id": job_id})
    await scene.say(job_id, 1)
    await scene.end(owner, job_id)
    assert said(owner.seen) == ["0", "1", "2", "0", "1", "2", "1", "2", "3", "4"]
    assert numbers(owner.seen) == list(range(1, 11))
    assert (await subscribe(owner, job_id))["replayed"] is False
    answer = await subscribe(owner, job_id, history=True, from_event_seq=2)
    assert (answer["replayed"], answer["subscribed_from"]) == (True, 15)
    frames = await until_end(owner, job_id)
    assert said(frames) == ["2", "3", "4", "job.result"]
    assert numbers(frames) == [12, 13, 14, 15]
    assert not await watched(scene, owner)


async def test_history_again_outlives_its_connection(scene: Scene) -> None:
    """A replay that a lost connection has cut off goes on after the resume, with its answer."""
    owner = await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 3)
    await settled(owner)
    request = await owner.send("job.subscribe", {"job_id": job_id, "history": True})
    await wait_all_tasks_blocked()
    await owner.drop()
    await scene.say(job_id, 1)
    again = await scene.welcomed(resume=owner.resume_from())
    assert (await again.answer("job.subscribed", request))["subscribed_from"] == 6
    await scene.say(job_id, 1)
    await scene.end(again, job_id)
    assert said(again.seen) == ["0", "1", "2", "3", "4"]
    assert numbers(again.seen) == [4, 5, 6, 7, 8]


async def test_history_again_begins_no_child_again() -> None:
    """The history of a parent brings its own events; a delegated job's come once."""
    async with open_scene() as scene:
        owner = await scene.welcomed()
        asked = trio.Event()

        @scene.runtime.agent("parent")
        async def parent(job: JobContext) -> Json:
            await job.log("before")
            child = await job.delegate("teller")
            await asked.wait()
            await child.result()

        job = await owner.submit("parent", lease_request={"agent.delegate": ["teller"]})
        child_id = (await owner.expect("job.accepted"))["payload"]["job_id"]
        await scene.say(child_id, 2)
        answer = await subscribe(owner, job["job_id"], history=True)
        assert answer["replayed"] is True
        asked.set()
        await scene.end(owner, child_id)
        await owner.until_terminal(job["job_id"])
        told = [frame for frame in owner.seen if "event_seq" in frame]
        assert said([frame for frame in told if frame["job_id"] == child_id]) == ["0", "1"]
        kinds = [f["payload"]["kind"] for f in told if f["job_id"] == job["job_id"]]
        assert kinds == ["log", "delegate", "log", "delegate"]


async def test_ones_own_job_by_a_key(scene: Scene) -> None:
    """A session that submitted the job's key again is its submitter, too."""
    owner, again = await scene.welcomed(), await scene.welcomed()
    fields: Frame = {"idempotency_key": "k"}
    job_id = (await owner.submit("teller", **fields))["job_id"]
    await again.submit("teller", **fields)
    await scene.say(job_id, 2)
    assert (await subscribe(again, job_id))["replayed"] is False
    await scene.end(owner, job_id)
    await again.until_terminal(job_id)
    assert (await subscribe(again, job_id))["replayed"] is False
    assert said(await settled(again)) == ["0", "1"]


@pytest.mark.parametrize("quiet", [True, False])
async def test_who_submits_what_it_observes(scene: Scene, *, quiet: bool) -> None:
    """Submitting the key of an observed job brings its events from the first, each once."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    fields: Frame = {"idempotency_key": "k"}
    job_id = (await owner.submit("teller", **fields))["job_id"]
    if not quiet:
        await scene.say(job_id, 2)
    await subscribe(watcher, job_id)
    await watcher.submit("teller", **fields)
    await scene.say(job_id, 2)
    await watcher.send("job.unsubscribe", {"job_id": job_id})
    await scene.say(job_id, 1)
    await scene.end(owner, job_id)
    total = 3 if quiet else 5
    frames = [*watcher.seen, *await until_end(watcher, job_id)]
    assert said(frames) == [*map(str, range(total)), "job.result"]


@pytest.mark.spec("7.6-12")
async def test_subscribing_twice(scene: Scene) -> None:
    """A second subscription brings the history that it asks for; one unsubscribe stops both."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 2)
    asked = [await subscribe(watcher, job_id, history=each) for each in (True, False, True)]
    assert [answer["replayed"] for answer in asked] == [True, False, True]
    await scene.say(job_id, 1)
    await up_to(watcher, 5)  # a listing may come before what is read for a replay
    await watcher.send("job.unsubscribe", {"job_id": job_id})
    await settled(watcher)
    await scene.say(job_id, 1)
    await settled(watcher)
    assert said(scene.recorder.events(job_id, session_id=str(watcher.session_id))) == [
        *["0", "1"],
        *["0", "1", "2"],
    ]


@pytest.mark.spec("7.6-12")
async def test_unsubscribe_and_subscribe_in_one_segment(scene: Scene) -> None:
    """A new subscription right after an unsubscribe brings each event once."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await subscribe(watcher, job_id)
    for round_ in range(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.say, job_id, 3)
            await watcher.send("job.unsubscribe", {"job_id": job_id})
            request = await watcher.send("job.subscribe", {"job_id": job_id, "history": True})
        await watcher.answer("job.subscribed", request)
        await settled(watcher)
        assert said(watcher.seen)[-3 * round_ - 3 :] == [str(n) for n in range(3 * round_ + 3)]
        watcher.seen.clear()
    await scene.end(owner, job_id)
    assert said(await until_end(watcher, job_id)) == ["job.result"]


async def test_unsubscribe_while_the_store_is_slow(autojump_clock: MockClock) -> None:
    """A request that comes while a batch is being stored is answered after that batch."""
    async with open_scene() as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        await subscribe(watcher, job_id)
        scene.slow_down_commits()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.say, job_id, 3)
            await trio.sleep(0.5)
            await watcher.send("job.unsubscribe", {"job_id": job_id})
            request = await watcher.send("job.subscribe", {"job_id": job_id})
            await wait_all_tasks_blocked()
        await watcher.answer("job.subscribed", request)
        await scene.say(job_id, 2)
        await scene.end(owner, job_id)
        assert said(await until_end(watcher, job_id)) == ["3", "4", "job.result"]


async def test_unsubscribe_of_what_is_not_observed(scene: Scene) -> None:
    """Unsubscribing from a job that is not observed, or unknown, gets no answer."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    for name in (job_id, "job_nobody"):
        await watcher.send("job.unsubscribe", {"job_id": name})
    assert await settled(watcher) == []


@pytest.mark.spec("7.6-12")
async def test_unsubscribe_of_a_job_that_catches_up(autojump_clock: MockClock) -> None:
    """An unsubscribe breaks off a long history; other jobs' events go on."""
    async with open_scene(tail_frames=8) as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        own = (await watcher.submit("teller"))["job_id"]
        job_id = (await owner.submit("teller"))["job_id"]
        await scene.say(job_id, 20_000)
        await scene.end(owner, job_id)
        await subscribe(watcher, job_id, history=True)
        await watcher.send("job.unsubscribe", {"job_id": job_id})
        await scene.say(own, 3)
        await scene.end(watcher, own)
        events = scene.recorder.events(job_id, session_id=str(watcher.session_id))
        assert said(events) == [str(n) for n in range(len(events))]
        assert len(events) < 20_000
        assert len(scene.recorder.events(own)) == 3


async def test_a_subscription_between_the_end_and_its_commit(autojump_clock: MockClock) -> None:
    """A subscription while the terminal is being stored is answered with the final status."""
    async with open_scene() as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        scene.slow_down_commits()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(scene.end, owner, job_id)
            await wait_all_tasks_blocked()
            answer = await subscribe(watcher, job_id)
        assert answer["current_status"] == "success"
        assert not await watched(scene, watcher)


@pytest.mark.spec("7.6-5")
async def test_a_job_that_has_not_begun(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that has not begun is pending, and can be followed from its first event."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    start_held = hold_jobs(scene.runtime, monkeypatch)
    job_id = (await owner.submit("teller"))["job_id"]
    answer = await subscribe(watcher, job_id, history=True)
    assert answer["current_status"] == "pending"
    assert answer["replayed"] is False
    assert [e["status"] for e in (await listing(watcher))["jobs"]] == ["pending"]
    start_held()
    await scene.say(job_id, 1)
    await scene.end(owner, job_id)
    assert said(await until_end(watcher, job_id)) == ["0", "job.result"]
