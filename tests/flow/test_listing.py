"""Listings: what they show, how they are filtered, and for how long (§6.6)."""

from __future__ import annotations

import time

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InvalidRequest, JobContext, JobNotFound, PostgresStore
from arcp_trio.store.records import Status
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from arcp_trio.wire.rules import VENDOR
from tests.flow.observing import Scene, listing, open_scene, settled, subscribe
from tests.flow.paging import encoded, ended_jobs, listed, pages
from tests.reading import numbers
from tests.stage import BOB


def entry_of(page: Frame, job_id: str) -> Frame:
    """Return a job's entry in a page."""
    (entry,) = [each for each in page["jobs"] if each["job_id"] == job_id]
    found: Frame = entry
    return found


# -- entries


@pytest.mark.spec("6.6-1", "6.6-6")
async def test_an_entry_has_everything(scene: Scene) -> None:
    """An entry has exactly the fields of §6.6 and one of the vendor, for running and ended jobs."""
    owner, reader = await scene.welcomed(), await scene.welcomed()
    request: Frame = {"tool.call": ["search.*"], "cost.budget": ["USD:1.00"]}
    job = await owner.submit("teller", lease_request=request)
    page = await listing(reader)
    assert set(page) == {"request_id", "jobs", "next_cursor"}
    assert page["next_cursor"] is None
    (entry,) = page["jobs"]
    entry.pop(VENDOR)
    assert entry == {
        "job_id": job["job_id"],
        "agent": "teller@2.0.0",
        "status": "running",
        "lease": request,
        "parent_job_id": None,
        "created_at": job["accepted_at"],
        "submitted_at": job["accepted_at"],
        "trace_id": job["trace_id"],
        "last_event_seq": 0,
    }
    await scene.say(job["job_id"], 2)
    await scene.end(owner, job["job_id"])
    (ended,) = (await listing(reader))["jobs"]
    ended.pop(VENDOR)
    assert ended == entry | {"status": "success", "last_event_seq": 3}
    assert not numbers(await settled(reader))


async def test_the_entry_of_a_child_names_its_parent(scene: Scene) -> None:
    """The entry of a child has its parent's id and trace."""
    owner = await scene.welcomed()

    @scene.runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        return await (await job.delegate("echo", "hi")).result()

    job = await owner.submit("parent", lease_request={"agent.delegate": ["echo"]})
    child = (await owner.expect("job.accepted"))["payload"]["job_id"]
    await owner.until_terminal(job["job_id"])
    entry = entry_of(await listing(owner), child)
    assert entry["parent_job_id"] == job["job_id"]
    assert entry["trace_id"] == job["trace_id"]


@pytest.mark.spec("6.6-1")
async def test_last_event_seq_is_what_the_wire_showed(scene: Scene) -> None:
    """`last_event_seq` is the job's last number in its submitter's session."""
    owner, reader = await scene.welcomed(), await scene.welcomed()
    one, two = [(await owner.submit("teller"))["job_id"] for _ in range(2)]
    await subscribe(reader, one)
    for count in range(1, 6):
        await scene.say(one, count)
        await scene.say(two, 1)
        await settled(owner)
        page = await listing(reader)
        for job_id in (one, two):
            events = scene.recorder.events(job_id, session_id=str(owner.session_id))
            assert entry_of(page, job_id)["last_event_seq"] == events[-1]["event_seq"]
    await scene.end(owner, one)
    end = (await owner.until_terminal(one))["event_seq"]
    assert entry_of(await listing(reader), one)["last_event_seq"] == end
    await scene.end(owner, two)


# -- filters


@pytest.mark.spec("6.6-2")
async def test_by_status(scene: Scene) -> None:
    """A listing by status has jobs of any status named; an unknown status is refused."""
    owner = await scene.welcomed()
    done, running, gone = [(await owner.submit("teller"))["job_id"] for _ in range(3)]
    await scene.end(owner, done)
    await owner.send("job.cancel", {"job_id": gone})
    await owner.until_terminal(gone)
    for status, expected in (
        (["running"], [running]),
        (["success"], [done]),
        (["cancelled", "success"], [gone, done]),
        (["pending", "error", "timed_out"], []),
        ([], []),
        ([status.value for status in Status], [gone, running, done]),
        (None, [gone, running, done]),
    ):
        assert await listed(owner, filter={"status": status}) == expected
    for wrong in (["running", "asleep"], ["RUNNING"], [""], "running", [1]):
        with pytest.raises(InvalidRequest, match=r"\$\.(payload\.)?filter\.status"):
            await listing(owner, filter={"status": wrong})


@pytest.mark.spec("6.6-2")
async def test_by_agent(scene: Scene) -> None:
    """A bare name lists all versions of an agent, and a version only itself."""
    owner = await scene.welcomed()
    one = (await owner.submit("teller@1.0.0"))["job_id"]
    two = (await owner.submit("teller"))["job_id"]
    echo = (await owner.submit("echo"))["job_id"]
    for agent, expected in (
        ("teller", [two, one]),
        ("teller@1.0.0", [one]),
        ("teller@2.0.0", [two]),
        ("teller@3.0.0", []),
        ("echo", [echo]),
        ("tell", []),
        ("nobody", []),
        ("teller@", []),
        ("%", []),
        (None, [echo, two, one]),
    ):
        assert await listed(owner, filter={"agent": agent}) == expected


@pytest.mark.spec("6.6-2")
async def test_by_time(autojump_clock: MockClock) -> None:
    """`created_after` and `created_before` exclude jobs created at that very time."""
    async with open_scene() as scene:
        owner = await scene.welcomed()
        jobs: list[str] = []
        for _ in range(3):
            jobs.append((await owner.submit("echo"))["job_id"])
            await trio.sleep(1.00047)  # a listing shows milliseconds
        one, two, three = jobs
        shown = [e["created_at"] for e in (await listing(owner))["jobs"]][::-1]
        for filter_, expected in (
            ({"created_after": shown[1]}, [three]),
            ({"created_before": shown[1]}, [one]),
            ({"created_after": shown[0], "created_before": shown[2]}, [two]),
            ({"created_after": shown[2]}, []),
            ({"created_after": "2000-01-01T00:00:00+02:00"}, [three, two, one]),
            ({"created_before": "2000-01-01T00:00:00Z"}, []),
            ({"created_after": shown[0], "status": ["success"], "agent": "echo"}, [three, two]),
        ):
            assert await listed(owner, filter=filter_) == expected, filter_
            paged = [job_id async for job_id in pages(owner, filter=filter_)]
            assert paged == expected
        for wrong in ("yesterday", "2026-01-01", 5, ""):
            with pytest.raises(InvalidRequest):
                await listing(owner, filter={"created_after": wrong})


# -- scope and retention


@pytest.mark.spec("6.6-4", "6.6-5")
async def test_one_sees_ones_own_jobs_only(scene: Scene) -> None:
    """No filter or cursor shows a principal the jobs of another."""
    owner, again, bob = (
        await scene.welcomed(),
        await scene.welcomed(),
        await scene.welcomed(token=BOB),
    )
    mine = [(await owner.submit("teller"))["job_id"] for _ in range(3)]
    his = [(await bob.submit("teller"))["job_id"] for _ in range(3)]
    for job_id in (*mine, *his):
        await scene.say(job_id)  # so its start is stored
    for peer, jobs in ((owner, mine), (again, mine), (bob, his)):
        assert await listed(peer) == jobs[::-1]
        assert await listed(peer, filter={"status": ["running"], "agent": "teller"}) == jobs[::-1]
    cursor = (await listing(owner, limit=1))["next_cursor"]
    assert not set(await listed(bob, cursor=cursor)) & set(mine)
    await owner.drop()
    assert await listed(again) == mine[::-1]


async def test_ended_jobs_are_listed_for_their_retention(autojump_clock: MockClock) -> None:
    """Within five seconds after its retention, an ended job is gone from listings."""
    async with open_scene(finished_job_seconds=100) as scene:
        owner = await scene.welcomed()
        done, running = [(await owner.submit("teller"))["job_id"] for _ in range(2)]
        await scene.end(owner, done)
        await trio.sleep(99)
        assert await listed(owner) == [running, done]
        await trio.sleep(6)
        assert await listed(owner) == [running]
        other = await scene.welcomed()
        with pytest.raises(JobNotFound):
            await subscribe(other, done, history=True)


async def test_only_so_many_ended_jobs_are_kept(autojump_clock: MockClock) -> None:
    """Past `finished_jobs` the jobs that ended first go first."""
    async with open_scene(finished_jobs=3) as scene:
        owner = await scene.welcomed()
        jobs: list[str] = []
        for _ in range(6):
            jobs.append((await owner.submit("echo"))["job_id"])
            await owner.until_terminal(jobs[-1])
        await trio.sleep(6)
        assert await listed(owner) == jobs[:2:-1]


# -- many


@pytest.mark.parametrize("filter_", [{}, {"status": ["error"], "agent": "nobody"}])
async def test_a_hundred_thousand_jobs(scene: Scene, filter_: Frame) -> None:
    """A page costs what is on it, however far back it is."""
    thousands = 20 if isinstance(scene.store, PostgresStore) else 100
    for number in range(thousands):
        ended_jobs(scene.store, "alice", 1_000, later=1_000 * number)
        await scene.store.flushed()
    reader = await scene.welcomed()
    cursor = encoded([1e9, (await listing(reader, limit=1_000))["jobs"][-1]["job_id"]])
    times: list[float] = []
    for place in (None, cursor) * 5:
        start = time.perf_counter()
        page = await listing(reader, limit=10, cursor=place, filter=filter_)
        times.append(time.perf_counter() - start)
        assert len(page["jobs"]) == (0 if filter_ else 10)
    assert min(times) < 0.25  # a page takes about 0.5 ms; to look at each job takes about 20 ms
