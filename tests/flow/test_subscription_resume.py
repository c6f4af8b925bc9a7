"""Subscriptions outlive the connection, and the runtime (§6.3, §7.6)."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from arcp_trio import MemoryStore, Policy, PostgresStore
from arcp_trio.store.interface import Store
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.testing.peer import TEST_TOKEN
from tests.durability.stores import crash
from tests.flow.observing import Scene, open_scene, said, settled, subscribe, watched
from tests.reading import numbers, until_end
from tests.stage import BOB
from tests.store import databases

# -- drop and resume


@pytest.mark.spec("6.3-1", "7.6-1", "7.6-8")
async def test_a_subscription_outlives_its_connection(scene: Scene) -> None:
    """A resume replays observed events under their numbers, and later ones follow."""
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
    """An observer sees a job to its end after the submitter dropped."""
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
    """A `job.subscribed` that was lost with the connection comes with the resume."""
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
    """A resumed subscription can be ended and made again."""
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


# -- rights


@pytest.fixture
def observers() -> set[str]:
    """The principals that may observe everybody's jobs at the moment."""
    return {"bob"}


@pytest.fixture
def policy(observers: set[str]) -> Policy:
    """Let these observe."""
    return Policy(observers=observers)


async def test_a_subscription_ends_with_the_right_to_it(scene: Scene, observers: set[str]) -> None:
    """Who may no longer observe a job is told so at the resume, once, and gets no more of it."""
    owner, watcher, bob = [await scene.welcomed(token=token) for token in (TEST_TOKEN, BOB, BOB)]
    job_id = (await owner.submit("teller"))["job_id"]
    own = (await bob.submit("teller"))["job_id"]
    for each in (job_id, own):
        await subscribe(watcher, each)
    for each in (job_id, own):
        await scene.say(each)
    assert said([await watcher.receive() for _ in range(2)]) == ["0", "0"]
    await watcher.drop()
    await scene.say(job_id)
    observers.clear()
    again = await scene.welcomed(token=BOB, resume=watcher.resume_from())
    refused = await again.receive()
    assert (refused["type"], refused["payload"]["code"]) == ("session.error", "JOB_NOT_FOUND")
    assert refused["payload"]["job_id"] == job_id
    await scene.say(job_id)
    await scene.say(own)
    assert (await again.receive())["job_id"] == own
    assert await watched(scene, again) == {own: 2}
    await again.drop()
    third = await scene.welcomed(token=BOB, resume=again.resume_from())
    await scene.say(job_id)
    assert not said(await settled(third))


# -- restart


@contextmanager
def successor(store: Store, folder: Path) -> Generator[Store]:
    """Provide the store that another process finds if this one is killed now."""
    if isinstance(store, MemoryStore):
        yield crash(store)
    elif isinstance(store, PostgresStore):
        with databases.copy(store._membership.address.conninfo) as url:
            yield PostgresStore(url, node=store.shared.name, synchronous=False)
    else:
        assert isinstance(store, SqliteStore)
        shutil.copytree(store.path.parent, folder)
        yield SqliteStore(folder / store.path.name, synchronous="OFF")


async def test_another_runtime_has_a_policy_of_its_own(scene: Scene, tmp_path: Path) -> None:
    """After a restart without its right, an observer does not even get the end of the job."""
    owner, watcher = await scene.welcomed(), await scene.welcomed(token=BOB)
    job_id = (await owner.submit("teller"))["job_id"]
    await subscribe(watcher, job_id)
    await watched(scene, watcher)
    with successor(scene.store, tmp_path / "copy") as store:
        async with open_scene(store, recorder=scene.recorder) as later:
            again = await later.welcomed(token=BOB, resume=watcher.resume_from())
            _, refused = await settled(again)
            assert refused["payload"]["code"] == "JOB_NOT_FOUND"
            assert not await watched(later, again)


async def test_a_subscription_outlives_the_runtime(scene: Scene, tmp_path: Path) -> None:
    """After a crash, the observer resumes its numbers and gets the end of the job."""
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
            # A job that the restart has ended is a finished job like any other.
            third = await later.welcomed()
            answer = await subscribe(third, job_id, history=True)
            assert answer["current_status"] == "error"
            assert said(await until_end(third, job_id)) == ["0", "1", "2", "job.error"]
