"""Listings: what they hold, how they are filtered and paged, and how they end (§6.6)."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import AsyncGenerator

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InvalidRequest, JobContext, JobNotFound
from arcp_trio.store.interface import Store
from arcp_trio.store.records import Entry, JobRow, Status
from arcp_trio.store.writes import AcceptJob, Expire, FinishJob
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import Json, JsonObject
from tests.flow.observing import (
    BOB,
    Scene,
    listing,
    numbers,
    open_scene,
    settled,
    subscribe,
)


async def listed(peer: Peer, **fields: Json) -> list[Json]:
    """The ids of the jobs of a listing."""
    return [entry["job_id"] for entry in (await listing(peer, **fields))["jobs"]]


def entry_of(page: JsonObject, job_id: str) -> Frame:
    """A job's entry in a page."""
    (entry,) = [each for each in page["jobs"] if each["job_id"] == job_id]
    found: Frame = entry
    return found


# -- entries


@pytest.mark.spec("6.6-1", "6.6-6")
async def test_an_entry_has_everything(scene: Scene) -> None:
    """All that §6.6 shows and nothing else, running and ended; to be listed observes nothing."""
    owner, reader = await scene.peer(), await scene.peer()
    request: JsonObject = {"tool.call": ["search.*"], "cost.budget": ["USD:1.00"]}
    job = await owner.submit("teller", lease_request=request)
    page = await listing(reader)
    assert set(page) == {"request_id", "jobs", "next_cursor"}
    assert page["next_cursor"] is None
    (entry,) = page["jobs"]
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
    assert ended == entry | {"status": "success", "last_event_seq": 3}
    assert not numbers(await settled(reader))


async def test_the_entry_of_a_child_names_its_parent(scene: Scene) -> None:
    """It has the trace of its parent, too."""
    owner = await scene.peer()

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
    """The job's own, in its submitter's numbers, while it runs and at its end."""
    owner, reader = await scene.peer(), await scene.peer()
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
    """Any of those named; none means none; one that is none of §7.3 is refused, and named."""
    owner = await scene.peer()
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
    """A bare name is any version of it; a version is that one."""
    owner = await scene.peer()
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
    """`created_after` and `created_before` leave out what was created at the time itself."""
    async with open_scene() as scene:
        owner = await scene.peer()
        jobs: list[str] = []
        for _ in range(3):
            jobs.append((await owner.submit("echo"))["job_id"])
            await trio.sleep(1.00047)  # what is shown is no finer than milliseconds
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


# -- pages


async def pages(peer: Peer, limit: int = 1, **fields: Json) -> AsyncGenerator[str, None]:
    """All jobs, page by page."""
    cursor: Json = None
    while True:
        page = await listing(peer, limit=limit, cursor=cursor, **fields)
        for entry in page["jobs"]:
            yield entry["job_id"]
        cursor = page["next_cursor"]
        if cursor is None:
            return


def ended_jobs(store: Store, principal: str, count: int) -> list[str]:
    """Have a store keep so many jobs of one time, the newest of which have ended first."""
    ids = [new_id("job_") for _ in range(count)]
    for job_id in ids:
        row = JobRow(
            job_id=job_id,
            agent="echo@1.0.0",
            principal=principal,
            session_id="sess_gone",
            trace_id="0" * 31 + "1",
            accepted=b'{"lease":{}}',
            created_at=1e9,
        )
        store.put(AcceptJob(row, None))
    for place, job_id in enumerate(reversed(ids)):
        end = Entry(0, place, b'"', terminal=True)
        store.put(FinishJob(job_id, Status.SUCCESS, EARLIER + place, end))
    return ids


EARLIER = time.time() - 80_000
"""A job that has ended then is not past its retention, but goes before any of a test's own."""


@pytest.mark.spec("6.6-3")
async def test_paging_while_jobs_come_and_go(scene: Scene) -> None:
    """300 jobs of one time, one by one, with 100 more coming and others going: each once.

    What goes are the jobs on the pages before, down to the one that the cursor stands behind.
    """
    old = ended_jobs(scene.store, "alice", 300)
    await scene.store.flushed()
    owner = await scene.peer()
    seen: list[str] = []
    async for job_id in pages(owner):
        seen.append(job_id)
        if len(seen) % 3 == 0:
            await owner.submit("echo")
        if len(seen) % 10 == 0:
            before = EARLIER + old[::-1].index(job_id)
            scene.store.put(Expire(now=0, finished_before=before, finished_jobs=1_000))
            await scene.store.flushed()
            assert await scene.store.job(job_id) is None
    assert seen == old[::-1]
    assert len([job_id async for job_id in pages(owner, limit=7)]) == 100


@pytest.mark.spec("6.6-3")
async def test_what_is_gone_is_on_no_page(scene: Scene) -> None:
    """Jobs that go before their page has come are left out, and take no others along."""
    old = ended_jobs(scene.store, "alice", 20)
    await scene.store.flushed()
    reader = await scene.peer()
    seen: list[str] = []
    async for job_id in pages(reader, limit=3):
        seen.append(job_id)
        if len(seen) == 5:
            before = EARLIER + 10
            scene.store.put(Expire(now=0, finished_before=before, finished_jobs=1_000))
            await scene.store.flushed()
    assert seen == [*old[:-7:-1], *old[-12::-1]]


@pytest.mark.spec("6.6-3")
async def test_limits(scene: Scene) -> None:
    """A number is brought within 1 to 1,000; without one it is 100; another type is refused."""
    ended_jobs(scene.store, "alice", 1_100)
    await scene.store.flushed()
    reader = await scene.peer()
    for limit, count in (
        (0, 1),
        (-1, 1),
        (1, 1),
        (2.9, 2),
        (250, 250),
        (1_000, 1_000),
        (1_001, 1_000),
        (10**9, 1_000),
        (1e300, 1_000),
        (None, 100),
    ):
        page = await listing(reader, limit=limit)
        assert len(page["jobs"]) == count
        assert page["next_cursor"] is not None
    assert len((await listing(reader))["jobs"]) == 100
    wrongs: list[Json] = ["x", "5", True, [], {}]
    for wrong in wrongs:
        with pytest.raises(InvalidRequest, match="limit"):
            await listing(reader, limit=wrong)


@pytest.mark.spec("6.6-3")
@pytest.mark.parametrize("over", [0, 1, 2])
async def test_the_last_page(scene: Scene, over: int) -> None:
    """It has no cursor, whether or not it is full."""
    ended_jobs(scene.store, "alice", 3 * 5 + over)
    await scene.store.flushed()
    reader = await scene.peer()
    cursor: Json = None
    sizes: list[int] = []
    while not sizes or cursor is not None:
        page = await listing(reader, limit=5, cursor=cursor)
        cursor = page["next_cursor"]
        sizes.append(len(page["jobs"]))
    assert sizes == [5, 5, 5, over][: None if over else 3]


def encoded(value: object) -> str:
    """What looks like a cursor."""
    return b64encode(json.dumps(value).encode()).decode()


CURSORS = [
    "garbage",
    "",
    "\u00e9\u00e9\u00e9\u00e9",
    "====",
    "A" * 100_000,
    encoded({}),
    encoded([1]),
    encoded([1, 2]),
    encoded(["1", "job"]),
    encoded([None, "job"]),
    encoded([True, "job"]),
    encoded([1, "job", 3]),
    encoded([10**30, "job"]),
    encoded([1, "\ud800"]),
    encoded("[" * 50),
    b64encode(b"[" * 5_000).decode(),
    b64encode(b'[1e999,"job"]').decode(),
    b64encode(b"\xff\xfe").decode(),
    encoded([1, "job"]) + "\n",
]


async def test_a_cursor_that_is_none(scene: Scene) -> None:
    """Refused in the same few words, whatever it is; nothing of it comes back."""
    reader = await scene.peer()
    said: set[str] = set()
    for cursor in CURSORS:
        try:
            page = await listing(reader, cursor=cursor)
        except InvalidRequest as error:
            said.add(error.message)
        else:
            raise AssertionError((cursor[:100], page))
    assert said == {"the cursor is not one that a listing has given"}
    wrongs: list[Json] = [5, [], {}, False]
    for wrong in wrongs:
        with pytest.raises(InvalidRequest, match="cursor"):
            await listing(reader, cursor=wrong)


async def test_a_cursor_that_was_made_up(scene: Scene) -> None:
    """It is a place like any other: nobody sees more by it."""
    ended_jobs(scene.store, "bob", 3)
    ended_jobs(scene.store, "alice", 2)
    await scene.store.flushed()
    reader = await scene.peer()
    for place, count in (
        ([1e308, "zzz"], 2),
        ([0.0, ""], 0),
        ([-1e308, "\u0000"], 0),
        ([2e9, "' OR 1=1 --"], 2),
    ):
        assert len((await listing(reader, cursor=encoded(place)))["jobs"]) == count


async def test_a_page_fits_into_a_frame() -> None:
    """Jobs with large leases are spread over more pages than were asked for."""
    async with open_scene(frame_bytes_out=20_000) as scene:
        owner = await scene.peer()
        lease: JsonObject = {"tool.call": [f"tool-{n}.{'x' * 100}" for n in range(40)]}
        for _ in range(12):
            await owner.submit("echo", lease_request=lease)
        seen: list[str] = []
        cursor: Json = None
        while not seen or cursor is not None:
            page = await listing(owner, cursor=cursor)
            assert len(json.dumps(page)) < 20_000
            assert page["jobs"]
            seen += [entry["job_id"] for entry in page["jobs"]]
            cursor = page["next_cursor"]
        assert len(seen) == len(set(seen)) == 12


# -- scope and retention


@pytest.mark.spec("6.6-4", "6.6-5")
async def test_one_sees_ones_own_jobs_only(scene: Scene) -> None:
    """From any session of the principal, and nobody else's, by whatever filter or cursor."""
    owner, again, bob = await scene.peer(), await scene.peer(), await scene.peer(token=BOB)
    mine = [(await owner.submit("teller"))["job_id"] for _ in range(3)]
    his = [(await bob.submit("teller"))["job_id"] for _ in range(3)]
    for peer, jobs in ((owner, mine), (again, mine), (bob, his)):
        assert await listed(peer) == jobs[::-1]
        assert await listed(peer, filter={"status": ["running"], "agent": "teller"}) == jobs[::-1]
    cursor = (await listing(owner, limit=1))["next_cursor"]
    assert not set(await listed(bob, cursor=cursor)) & set(mine)
    await owner.drop()
    assert await listed(again) == mine[::-1]


async def test_ended_jobs_are_listed_for_their_retention(autojump_clock: MockClock) -> None:
    """Then they are gone, within five seconds, from listings and for subscribers."""
    async with open_scene(finished_job_seconds=100) as scene:
        owner = await scene.peer()
        done, running = [(await owner.submit("teller"))["job_id"] for _ in range(2)]
        await scene.end(owner, done)
        await trio.sleep(99)
        assert await listed(owner) == [running, done]
        await trio.sleep(6)
        assert await listed(owner) == [running]
        other = await scene.peer()
        with pytest.raises(JobNotFound):
            await subscribe(other, done, history=True)


async def test_only_so_many_ended_jobs_are_kept(autojump_clock: MockClock) -> None:
    """Past `finished_jobs` those that ended first go first."""
    async with open_scene(finished_jobs=3) as scene:
        owner = await scene.peer()
        jobs: list[str] = []
        for _ in range(6):
            jobs.append((await owner.submit("echo"))["job_id"])
            await owner.until_terminal(jobs[-1])
        await trio.sleep(6)
        assert await listed(owner) == jobs[:2:-1]


# -- many


@pytest.mark.parametrize("filter_", [{}, {"status": ["error"], "agent": "nobody"}])
async def test_a_hundred_thousand_jobs(scene: Scene, filter_: JsonObject) -> None:
    """A page costs what is on it, far back as in front; what nothing fits is looked through."""
    ended_jobs(scene.store, "alice", 100_000)
    await scene.store.flushed()
    reader = await scene.peer()
    cursor = encoded([1e9, (await listing(reader, limit=1_000))["jobs"][-1]["job_id"]])
    times: list[float] = []
    for place in (None, cursor) * 5:
        start = time.perf_counter()
        page = await listing(reader, limit=10, cursor=place, filter=filter_)
        times.append(time.perf_counter() - start)
        assert len(page["jobs"]) == (0 if filter_ else 10)
    assert min(times) < 0.25  # some 0.5 ms; a look at each of them takes some 20 ms
