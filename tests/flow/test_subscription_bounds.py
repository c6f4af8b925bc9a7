"""What subscriptions cost, and their bounds: slow readers, full journals, limits (§7.6)."""

from __future__ import annotations

import time
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import InternalError, JobContext, MemoryStore, PostgresStore
from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.interface import Store
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.testing import Peer, open_pair
from tests.durability.story import World
from tests.flow.observing import Scene, open_scene, said, settled, subscribe, watched
from tests.inside import count_hints, hints, unsent_bytes, watching_sessions
from tests.reading import next_unrecorded, until_end
from tests.stage import BOB
from tests.store import databases
from tests.store.engines import row_counts


async def test_an_observer_that_does_not_read_catches_up(autojump_clock: MockClock) -> None:
    """An observer that reads late gets everything, in order, to the end."""
    async with open_scene(tail_frames=50, outbox_items=8) as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        await subscribe(watcher, job_id)
        await scene.say(job_id, 5_000)
        await scene.end(owner, job_id)
        frames = await until_end(watcher, job_id)
        assert said(frames) == [*map(str, range(5_000)), "job.result"]


async def test_many_observers_that_do_not_read_are_bounded(autojump_clock: MockClock) -> None:
    """Each session's unsent bytes and hints are bounded, whichever jobs they watch."""
    most = 20_000
    async with open_scene(tail_bytes=most, outbox_items=16) as scene:
        owner = await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        watchers = [await scene.welcomed() for _ in range(50)]
        for watcher in watchers:
            await subscribe(watcher, job_id)
        await scene.say(job_id, 3_000)
        await wait_all_tasks_blocked()
        watching = watching_sessions(scene.runtime, job_id)
        assert watching == {peer.session_id for peer in (owner, *watchers)}
        for session_id in watching:
            assert unsent_bytes(scene.runtime, session_id) <= most + 1_024 * 300
            assert hints(scene.runtime, session_id) <= 16
        await scene.end(owner, job_id)


def open_small() -> AbstractAsyncContextManager[Scene]:
    """Run a scene in which unread events are soon given up."""
    return open_scene(journal_bytes=20_000, tail_frames=4, outbox_items=4)


@pytest.mark.parametrize("dropping", [False, True])
async def test_a_journal_that_was_trimmed_under_an_observer(
    *, dropping: bool, autojump_clock: MockClock
) -> None:
    """An observer gets what had a number, is told that the rest is gone, and goes on."""
    async with open_small() as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        own = (await watcher.submit("teller"))["job_id"]
        await subscribe(watcher, job_id)
        await scene.say(job_id, 1)
        assert said([await watcher.receive()]) == ["0"]
        if dropping:
            await watcher.drop()
            await wait_all_tasks_blocked()  # a resume cannot skip a numbered event that is gone
        async with tasks_beside() as nursery:
            nursery.start_soon(read_on, owner)
            for _ in range(40):
                await scene.say(job_id, 100)
        if dropping:
            # Nor is the notice lost with the connection it was being sent on.
            for _ in range(2):
                watcher = await scene.resumed(watcher)
                await wait_all_tasks_blocked()
        told = await watcher.expect("session.error", job_id=job_id)
        assert told["payload"]["code"] == "RESUME_WINDOW_EXPIRED"
        prefix = scene.recorder.events(job_id, session_id=str(watcher.session_id))
        assert said(prefix) == [str(number) for number in range(len(prefix))]
        await scene.say(job_id, 1)
        await scene.say(own, 1)
        assert said([await watcher.receive()]) == ["0"]
        assert await watched(scene, watcher) == {own: 1}
        # What is left can be subscribed to again.
        answer = await subscribe(watcher, job_id, history=True)
        assert answer["replayed"] is True
        left = [await watcher.receive() for _ in range(20)]
        first = int(said(left)[0])
        assert first > 0
        assert said(left) == [str(first + number) for number in range(20)]


async def read_on(peer: Peer) -> None:
    """Read all the time."""
    while True:
        await peer.receive()


async def a_trimmed_job(scene: Scene, owner: Peer) -> str:
    """Run a job to its end, whose first events are no longer kept; return its id."""
    job_id: str = (await owner.submit("teller"))["job_id"]
    async with tasks_beside() as nursery:
        nursery.start_soon(read_on, owner)
        for _ in range(10):
            await scene.say(job_id, 100)
    await scene.end(owner, job_id)
    return job_id


async def test_history_of_an_ended_job_begins_with_what_is_left(autojump_clock: MockClock) -> None:
    """History begins with the oldest event that was kept, and goes on to the end."""
    async with open_small() as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = await a_trimmed_job(scene, owner)
        answer = await subscribe(watcher, job_id, history=True)
        frames = await until_end(watcher, job_id)
        first = int(said(frames)[0])
        assert first > 0
        assert said(frames) == [*map(str, range(first, 1_000)), "job.result"]
        assert answer["subscribed_from"] == len(frames)


async def test_a_client_is_told_of_a_history_without_its_beginning(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that asks for the whole history learns how many of its events are gone."""
    async with open_small() as scene, open_pair(scene.runtime) as client:
        owner = await scene.welcomed()
        job_id = await a_trimmed_job(scene, owner)
        job = await client.subscribe(job_id, history=True)
        first, *_ = [int(event.body["message"]) async for event in job.events()]
        assert f"the first {first} events of {job_id} are no longer kept" in caplog.text


async def test_subscribe_and_drop_leaves_nothing(autojump_clock: MockClock) -> None:
    """After the windows of a thousand observers, only the submitter watches the job."""
    async with open_scene(resume_window_seconds=10) as scene:
        owner = await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        for _ in range(1_000):
            watcher = await scene.welcomed()
            await subscribe(watcher, job_id)
            await watcher.drop()
        assert isinstance(scene.store, MemoryStore)
        assert len(scene.store._tables.journals[job_id].watchers) == 1_001
        await trio.sleep(30)
        assert watching_sessions(scene.runtime, job_id) == {owner.session_id}
        assert scene.store._tables.journals[job_id].watchers == {owner.session_id}
        assert list(scene.store._tables.sessions) == [owner.session_id]
        await scene.say(job_id, 1)
        await scene.end(owner, job_id)


async def journal_size(store: Store) -> int:
    """Return the number of journal entries that are stored."""
    await store.flushed()
    if isinstance(store, SqliteStore):
        return (await store._read(row_counts))["journal"]
    if isinstance(store, PostgresStore):
        return (await store.read(databases.row_counts))["journal"]
    assert isinstance(store, MemoryStore)
    return sum(len(journal.entries) for journal in store._tables.journals.values())


async def test_observing_stores_no_event_again(scene: Scene) -> None:
    """A hundred subscriptions with history store no event again, and send the submitter nothing."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 50)
    before = await journal_size(scene.store)
    for _ in range(100):
        await subscribe(watcher, job_id, history=True)
        assert said([await watcher.receive() for _ in range(50)]) == [*map(str, range(50))]
        await watcher.send("job.unsubscribe", {"job_id": job_id})
    assert not said(await settled(watcher))
    assert await journal_size(scene.store) == before
    assert not await watched(scene, watcher)
    await scene.end(owner, job_id)
    assert said(owner.seen) == [*map(str, range(50))]


async def test_subscriptions_are_limited(autojump_clock: MockClock) -> None:
    """A subscription past the limit is refused by name; one that ends makes room."""
    async with open_scene(subscriptions_per_session=3) as scene:
        owner, watcher, other = [await scene.welcomed() for _ in range(3)]
        jobs = [(await owner.submit("teller"))["job_id"] for _ in range(5)]
        own = (await watcher.submit("teller"))["job_id"]
        # All in one segment: subscriptions that are not answered yet count, too.
        asked = [await watcher.send("job.subscribe", {"job_id": job_id}) for job_id in jobs[:4]]
        for request in asked[:3]:
            await watcher.answer("job.subscribed", request)
        with pytest.raises(InternalError) as caught:
            await watcher.answer("job.subscribed", asked[3])
        assert caught.value.details == {"limit": "subscriptions_per_session", "max": 3}
        assert caught.value.retryable
        for job_id in (own, jobs[0]):  # these do not add a subscription
            await subscribe(watcher, job_id)
        await subscribe(other, jobs[3])
        again = await scene.resumed(watcher)
        with pytest.raises(InternalError):
            await subscribe(again, jobs[3])
        await again.send("job.unsubscribe", {"job_id": jobs[0]})
        await subscribe(again, jobs[3])
        await scene.end(owner, jobs[1])
        await again.until_terminal(jobs[1])
        await subscribe(again, jobs[4])
        bob = await scene.welcomed(token=BOB)
        await subscribe(bob, (await bob.submit("teller"))["job_id"])


async def test_an_event_costs_those_who_watch_its_job(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session with a thousand subscriptions gets one hint for an event of one of them."""
    counted = count_hints(monkeypatch)
    async with open_scene(jobs=1_000, jobs_per_principal=1_000) as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        jobs = [(await owner.submit("teller"))["job_id"] for _ in range(1_000)]
        for job_id in jobs:
            await subscribe(watcher, job_id)
        await scene.say(jobs[500], 3)
        assert said([await watcher.receive() for _ in range(3)]) == ["0", "1", "2"]
        assert counted == {owner.session_id: 3, watcher.session_id: 3}


EVENTS = 2_000


@pytest.mark.parametrize("at_once", [1, 100])
async def test_jobs_that_say_nothing_cost_nothing(at_once: int, autojump_clock: MockClock) -> None:
    """A hundred times as many silent observed jobs do not make another job's events dearer.

    The comparison is rough, and holds for events one by one and many at a time.
    """
    few, many = [await cost_beside(silent, at_once) for silent in (10, 1_000)]
    assert many < 3 * few


async def cost_beside(silent: int, at_once: int) -> float:
    """Return the processor time for the events of one job beside `silent` observed ones."""
    world = World(
        MemoryStore(), jobs_per_principal=2_000, jobs=2_000, subscriptions_per_session=2_000
    )
    go = trio.Event()

    @world.runtime.agent("chatty")
    async def chatty(job: JobContext) -> None:
        await go.wait()
        for _ in range(EVENTS // at_once):
            for _ in range(at_once):
                await job.log("")
            await trio.sleep(0.001)

    async with world.runtime:
        owner, observer = world.connect(), world.connect()
        for peer in (owner, observer):
            await peer.hello()
        for agent in [*["waiter"] * silent, "chatty"]:
            job = await owner.submit(agent)
            subscribe = {"job_id": job["job_id"], "history": False}
            await observer.answer("job.subscribed", await observer.send("job.subscribe", subscribe))
        began: float = time.thread_time()
        go.set()
        await next_unrecorded(observer, "job.result")
        return time.thread_time() - began
