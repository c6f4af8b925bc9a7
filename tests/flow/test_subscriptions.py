"""The life of subscriptions: drops, resumes, restarts, full journals, limits, and what is left."""

from __future__ import annotations

import random
import shutil
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import InternalError, JobContext, MemoryStore
from arcp_trio.store.interface import Store
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.testing import Peer
from arcp_trio.testing.background import background_tasks
from tests.durability.stores import crash
from tests.flow.observing import Scene, listing, open_scene, said, settled, subscribe, watched
from tests.inside import count_hints, hints, unsent_bytes, watching_sessions
from tests.reading import numbers, until_end
from tests.stage import BOB
from tests.store.engines import row_counts

# -- drop and resume


@pytest.mark.spec("6.3-1", "7.6-1", "7.6-8")
async def test_a_subscription_outlives_its_connection(scene: Scene) -> None:
    """A resume replays what was observed, under its numbers, and the rest follows by itself."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 3)
    await subscribe(watcher, job_id, history=True)
    assert said([await watcher.receive() for _ in range(2)]) == ["0", "1"]
    await watcher.drop()
    await scene.say(job_id, 2)
    again = await scene.resumed(watcher)
    await scene.say(job_id, 2)
    frames = [await again.receive() for _ in range(5)]
    assert said(frames) == ["2", "3", "4", "5", "6"]
    assert numbers(frames) == [3, 4, 5, 6, 7]
    third = await scene.resumed(again)
    await scene.end(owner, job_id)
    assert said(await until_end(third, job_id)) == ["job.result"]
    events = scene.recorder.events(job_id, session_id=str(third.session_id))
    assert said(events) == [str(number) for number in range(7)]


@pytest.mark.spec("7.6-1")
async def test_an_observer_does_not_notice_its_submitters_drop(scene: Scene) -> None:
    """The job runs on, and the observer sees it to its end."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await subscribe(watcher, job_id)
    await scene.say(job_id, 1)
    await owner.drop()
    await scene.say(job_id, 2)
    await scene.end(watcher, job_id)
    events = scene.recorder.events(job_id, session_id=str(watcher.session_id))
    assert said(events) == ["0", "1", "2"]


async def test_an_answer_that_did_not_arrive_comes_with_the_resume(scene: Scene) -> None:
    """A `job.subscribed` is promised: a client that dropped before it is told all the same."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await scene.say(job_id, 1)
    await watcher.send("job.subscribe", {"job_id": job_id, "history": True})
    while not await watched(scene, watcher):  # noqa: ASYNC110 - what the store has
        await trio.lowlevel.checkpoint()
    again = await scene.resumed(watcher)
    assert (await again.receive())["type"] == "job.subscribed"
    assert said([await again.receive()]) == ["0"]


async def test_a_subscription_ends_after_a_resume(scene: Scene) -> None:
    """What was woken with its session can be unsubscribed from, and subscribed to again."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    await subscribe(watcher, job_id)
    again = await scene.resumed(watcher)
    assert (await subscribe(again, job_id, history=True))["replayed"] is False
    await again.send("job.unsubscribe", {"job_id": job_id})
    await settled(again)
    await scene.say(job_id, 1)
    assert not said(await settled(again))
    assert not await watched(scene, again)
    third = await scene.resumed(again)
    await scene.say(job_id, 1)
    await subscribe(third, job_id)
    await scene.say(job_id, 1)
    assert said([await third.receive()]) == ["2"]


# -- restart


@contextmanager
def successor(store: Store, folder: Path) -> Generator[Store]:
    """What another process finds if this one is killed now."""
    if isinstance(store, MemoryStore):
        yield crash(store)
    else:
        assert isinstance(store, SqliteStore)
        shutil.copytree(store.path.parent, folder)
        yield SqliteStore(folder / store.path.name, synchronous="OFF")


async def test_a_subscription_outlives_the_runtime(scene: Scene, tmp_path: Path) -> None:
    """A killed runtime's successor goes on with the numbers, and brings the end it gave the job."""
    owner, watcher = await scene.welcomed(), await scene.welcomed()
    job_id = (await owner.submit("teller"))["job_id"]
    own = (await watcher.submit("teller"))["job_id"]
    await scene.say(job_id, 3)
    await subscribe(watcher, job_id, history=True)
    assert said([await watcher.receive() for _ in range(2)]) == ["0", "1"]
    assert await watched(scene, watcher) == {job_id: 3, own: 0}
    with successor(scene.store, tmp_path / "copy") as store:
        async with open_scene(store, recorder=scene.recorder) as later:
            row = await store.session(str(watcher.session_id))
            assert row is not None
            assert row.observed == {job_id}
            again = await later.welcomed(resume=watcher.resume_from())
            frames = [await again.receive() for _ in range(3)]
            assert said(frames) == ["2", "job.error", "job.error"]
            assert numbers(frames) == [3, 4, 5]
            assert frames[1]["payload"]["code"] == "INTERNAL_ERROR"
            assert frames[1]["payload"]["retryable"] is True
            assert not await watched(later, again)
            # A job that ended with its runtime is a finished job like any other.
            third = await later.welcomed()
            answer = await subscribe(third, job_id, history=True)
            assert answer["current_status"] == "error"
            assert said(await until_end(third, job_id)) == ["0", "1", "2", "job.error"]


# -- readers that are slow, and journals that are full


async def test_an_observer_that_does_not_read_catches_up(autojump_clock: MockClock) -> None:
    """Its submitter notices nothing; once it reads, it has everything, in order, to the end."""
    async with open_scene(tail_frames=50, outbox_items=8) as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        await subscribe(watcher, job_id)
        await scene.say(job_id, 5_000)
        await scene.end(owner, job_id)
        frames = await until_end(watcher, job_id)
        assert said(frames) == [*map(str, range(5_000)), "job.result"]


async def test_many_observers_that_do_not_read_are_bounded(autojump_clock: MockClock) -> None:
    """Each session holds its own bounded tail, whoever's events these are."""
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
    """A runtime in which what is not read at once is soon given up."""
    return open_scene(journal_bytes=20_000, tail_frames=4, outbox_items=4)


@pytest.mark.parametrize("dropping", [False, True])
async def test_a_journal_that_was_trimmed_under_an_observer(
    *, dropping: bool, autojump_clock: MockClock
) -> None:
    """It reads what had a number, and is told that the rest is gone; its session goes on."""
    async with open_small() as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        own = (await watcher.submit("teller"))["job_id"]
        await subscribe(watcher, job_id)
        await scene.say(job_id, 1)
        assert said([await watcher.receive()]) == ["0"]
        if dropping:
            await watcher.drop()
            await wait_all_tasks_blocked()  # what has a number and is gone, a resume cannot skip
        async with background_tasks() as nursery:
            nursery.start_soon(read_on, owner)
            for _ in range(40):
                await scene.say(job_id, 100)
        if dropping:
            # Neither does it get lost with a connection that it was on its way on.
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
        # What is left is there for who asks again.
        answer = await subscribe(watcher, job_id, history=True)
        assert answer["replayed"] is True
        left = [await watcher.receive() for _ in range(20)]
        first = int(said(left)[0])
        assert first > 0
        assert said(left) == [str(first + number) for number in range(20)]


async def read_on(peer: Peer) -> None:
    """Be a client that reads all the time."""
    while True:
        await peer.receive()


async def test_history_of_an_ended_job_begins_with_what_is_left(autojump_clock: MockClock) -> None:
    """The oldest events were given up; the others come, in order, to the end."""
    async with open_small() as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        async with background_tasks() as nursery:
            nursery.start_soon(read_on, owner)
            for _ in range(10):
                await scene.say(job_id, 100)
        await scene.end(owner, job_id)
        answer = await subscribe(watcher, job_id, history=True)
        frames = await until_end(watcher, job_id)
        first = int(said(frames)[0])
        assert first > 0
        assert said(frames) == [*map(str, range(first, 1_000)), "job.result"]
        assert answer["subscribed_from"] == len(frames)


# -- the boundary between history and what is live


async def test_nothing_is_lost_or_doubled_between_history_and_live() -> None:
    """200 subscriptions with history to a job that never pauses: each event once and in order."""
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
    """Be a client that reads all the time, until a job ends."""
    await until_end(peer, job_id)


# -- what is left


async def test_subscribe_and_drop_leaves_nothing(autojump_clock: MockClock) -> None:
    """A thousand observers come and go; after their windows only the submitter watches the job."""
    async with open_scene(resume_window_seconds=10) as scene:
        owner = await scene.welcomed()
        job_id = (await owner.submit("teller"))["job_id"]
        for _ in range(1_000):
            watcher = await scene.welcomed()
            await subscribe(watcher, job_id)
            await watcher.drop()
        assert isinstance(scene.store, MemoryStore)
        assert len(scene.store.tables.journals[job_id].watchers) == 1_001
        await trio.sleep(30)
        assert watching_sessions(scene.runtime, job_id) == {owner.session_id}
        assert scene.store.tables.journals[job_id].watchers == {owner.session_id}
        assert list(scene.store.tables.sessions) == [owner.session_id]
        await scene.say(job_id, 1)
        await scene.end(owner, job_id)


async def journal_size(store: Store) -> int:
    """How much of jobs' journals is stored."""
    await store.flushed()
    if isinstance(store, SqliteStore):
        return (await store._read(row_counts))["journal"]
    assert isinstance(store, MemoryStore)
    return sum(len(journal.entries) for journal in store.tables.journals.values())


async def test_observing_stores_no_event_again(scene: Scene) -> None:
    """A hundred subscriptions with history leave the journals as they were, and echo nothing."""
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


# -- limits


async def test_subscriptions_are_limited(autojump_clock: MockClock) -> None:
    """One more is refused by name; one that ends makes room; nobody else is affected."""
    async with open_scene(subscriptions_per_session=3) as scene:
        owner, watcher, other = [await scene.welcomed() for _ in range(3)]
        jobs = [(await owner.submit("teller"))["job_id"] for _ in range(5)]
        own = (await watcher.submit("teller"))["job_id"]
        # All in one segment: those on their way to their places count, too.
        asked = [await watcher.send("job.subscribe", {"job_id": job_id}) for job_id in jobs[:4]]
        for request in asked[:3]:
            await watcher.answer("job.subscribed", request)
        with pytest.raises(InternalError) as caught:
            await watcher.answer("job.subscribed", asked[3])
        assert caught.value.details == {"limit": "subscriptions_per_session", "max": 3}
        assert caught.value.retryable
        for job_id in (own, jobs[0]):  # these are no more than there were
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
    """A session with a thousand subscriptions is told of an event of one of them once."""
    counted = count_hints(monkeypatch)
    async with open_scene(jobs=1_000, jobs_per_principal=1_000) as scene:
        owner, watcher = await scene.welcomed(), await scene.welcomed()
        jobs = [(await owner.submit("teller"))["job_id"] for _ in range(1_000)]
        for job_id in jobs:
            await subscribe(watcher, job_id)
        await scene.say(jobs[500], 3)
        assert said([await watcher.receive() for _ in range(3)]) == ["0", "1", "2"]
        assert counted == {owner.session_id: 3, watcher.session_id: 3}
