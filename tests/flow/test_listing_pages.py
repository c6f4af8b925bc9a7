"""Pages of a listing, and the cursors between them (§6.6)."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from arcp_trio import InvalidRequest
from arcp_trio.store.writes import Expire
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json
from tests.flow.observing import Scene, listing, open_scene
from tests.flow.paging import EARLIER, encoded, ended_jobs, pages


@pytest.mark.spec("6.6-3")
async def test_paging_while_jobs_come_and_go(scene: Scene) -> None:
    """Paging through 300 jobs of one time shows each once, while others come and go.

    The jobs that go are those of earlier pages, down to the one that the cursor names.
    """
    old = ended_jobs(scene.store, "alice", 300)
    await scene.store.flushed()
    owner = await scene.welcomed()
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
    """Jobs that go before their page are left out, and no others with them."""
    old = ended_jobs(scene.store, "alice", 20)
    await scene.store.flushed()
    reader = await scene.welcomed()
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
    """The limit is clamped to 1 to 1,000, its default is 100, and another type is refused."""
    ended_jobs(scene.store, "alice", 1_100)
    await scene.store.flushed()
    reader = await scene.welcomed()
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
    """The last page has no cursor, whether or not it is full."""
    ended_jobs(scene.store, "alice", 3 * 5 + over)
    await scene.store.flushed()
    reader = await scene.welcomed()
    cursor: Json = None
    sizes: list[int] = []
    while not sizes or cursor is not None:
        page = await listing(reader, limit=5, cursor=cursor)
        cursor = page["next_cursor"]
        sizes.append(len(page["jobs"]))
    assert sizes == [5, 5, 5, over][: None if over else 3]


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
    """An invalid cursor is refused in the same words, without repeating it."""
    reader = await scene.welcomed()
    said: set[str] = set()
    for cursor in CURSORS:
        try:
            page = await listing(reader, cursor=cursor)
        except InvalidRequest as error:
            said.add(error.message)
        else:
            raise AssertionError((cursor[:100], page))
    assert said == {"the cursor did not come from a listing"}
    wrongs: list[Json] = [5, [], {}, False]
    for wrong in wrongs:
        with pytest.raises(InvalidRequest, match="cursor"):
            await listing(reader, cursor=wrong)


async def test_a_cursor_that_was_made_up(scene: Scene) -> None:
    """A forged cursor is a place like any other, and shows no more jobs."""
    ended_jobs(scene.store, "bob", 3)
    ended_jobs(scene.store, "alice", 2)
    await scene.store.flushed()
    reader = await scene.welcomed()
    for place, count in (
        ([1e308, "zzz"], 2),
        ([0.0, ""], 0),
        ([-1e308, "\u0000"], 0),
        ([2e9, "' OR 1=1 --"], 2),
    ):
        assert len((await listing(reader, cursor=encoded(place)))["jobs"]) == count


async def test_a_page_fits_into_a_frame() -> None:
    """Jobs with large leases are spread over more pages than asked for."""
    async with open_scene(frame_bytes_out=20_000) as scene:
        owner = await scene.welcomed()
        lease: Frame = {"tool.call": [f"tool-{n}.{'x' * 100}" for n in range(40)]}
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
