"""What is kept of durable jobs: memos, runs, spending, and what is not to be said again."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from arcp_trio.store.interface import Store
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.memos import Durability, Memo
from arcp_trio.store.records import Entry, Status
from arcp_trio.store.sqlite._cleaning import clean_piece
from arcp_trio.store.writes import (
    AcceptJob,
    AppendJournal,
    FinishJob,
    KeepMemo,
    KeepRun,
    KeepSpent,
    TrimJournal,
)
from arcp_trio.wire.envelope import JobTails
from arcp_trio.wire.events import digest, encode_event
from tests.store.engines import Engine, Feeder, job_row, running
from tests.store.files import on

DURABILITY = Durability(
    input=b'{"n":1}',
    max_runtime=5.0,
    sends_chunks=True,
    knows_questions=True,
    wants_credentials=True,
    forget=True,
)
VERSION_7 = Path(__file__).with_name("version_7.db.gz")
"""A store of version 7: three jobs that have ended, one of them with children, one that runs."""


def memo(key: str = "a", value: bytes = b"1", *, index: int = 0) -> Memo:
    """Return a memo of a step."""
    return Memo(key, "step", index, value)


def event(index: int, text: str, *, once: bool = True) -> Entry:
    """Return an entry with a line of a log."""
    payload = encode_event(
        "log", {"level": "info", "message": text}, f"2026-11-19T00:00:{index:02}Z"
    )
    tail = JobTails("J", "0" * 32).tail("job.event", payload, id=f"id{index}")
    return Entry(index, index + 1, tail, once=once)


def said(text: str) -> bytes:
    """Return the digest by which such a line is known."""
    return digest(encode_event("log", {"level": "info", "message": text}, "another time"))


def end(job_id: str = "J", *, at: float = 1.0, durable: bool = True) -> FinishJob:
    """Return the end of a job."""
    return FinishJob(
        job_id, Status.SUCCESS, at, Entry(9, 9, b"end", terminal=True), durable=durable
    )


async def all_said(store: Store) -> Sequence[tuple[int, bytes]]:
    """Return all events that are not to be said again."""
    found: list[tuple[int, bytes]] = []
    index: int | None = 0
    while index is not None:
        piece, index = await store.said("J", index)
        found += piece
    return found


async def test_keys_of_any_length(store: Store, feeder: Feeder) -> None:
    """A step within many others has a long key; keys that differ only at the end are two keys."""
    feeder.session()
    feeder.job()
    keys = [f"{'é' * 20_000}{n}" for n in range(2)]
    for key in (*keys, keys[1]):
        await store.put(KeepMemo("J", memo(key, key[-1].encode()))).committed()
    assert [found.value for found in await store.memos("J")] == [b"0", b"1"]
    assert [await store.memo("J", key) for key in keys] == await store.memos("J")


async def test_memos_are_kept_by_key(store: Store) -> None:
    """The last value of a key is kept, at the place of its first, and in the order of the keys."""
    store.put(AcceptJob(job_row(), None, durability=DURABILITY))
    for each in (memo("b"), memo("a", b"2", index=3), memo("b", b"3", index=5)):
        store.put(KeepMemo("J", each))
    await store.flushed()
    assert await store.memos("J") == [memo("b", b"3"), memo("a", b"2", index=3)]
    assert await store.memo("J", "a") == memo("a", b"2", index=3)
    assert await store.memo("J", "c") is None
    assert await store.memos("K") == []
    assert await store.memo("K", "a") is None


async def test_no_session_is_owed_a_memo(store: Store, feeder: Feeder) -> None:
    """Memos take no index: what a session is owed, and the journal's length, do without them."""
    store.put(AcceptJob(job_row(), None, durability=DURABILITY))
    store.put(AppendJournal("J", event(0, "x")))
    store.put(KeepMemo("J", memo(index=1)))
    await store.put(AppendJournal("J", event(1, "y"))).committed()
    assert [entry.index for _, entry in await store.owed({"J": 0}, 9, 9_999)] == [0, 1]
    assert [row.length for row in (await store.recover()).unfinished] == [2]


async def test_what_it_takes_to_call_an_agent_again(store: Store, feeder: Feeder) -> None:
    """A start finds a durable job as it was accepted, with its run and what it has spent."""
    store.put(AcceptJob(job_row(), None, durability=DURABILITY))
    feeder.job("K")
    store.put(KeepRun("J", 3, 2))
    await store.put(KeepSpent("J", b'{"USD":"1"}')).committed()
    ((job_id, (found, extent)),) = (await store.recover()).durable.items()
    now = replace(DURABILITY, run=3, fruitless_runs=2, spent=b'{"USD":"1"}')
    assert (job_id, found, extent.first) == ("J", now, 0)
    await store.put(end()).committed()
    assert not (await store.recover()).durable


async def test_writes_for_a_job_that_has_ended_change_nothing(store: Store) -> None:
    """What is spent or begun after the end is not kept."""
    store.put(AcceptJob(job_row(), None, durability=DURABILITY))
    store.put(end())
    store.put(KeepRun("J", 3, 2))
    await store.put(KeepSpent("J", b"{}")).committed()
    assert not (await store.recover()).durable


async def test_events_are_known_again_by_kind_and_body(engine: Engine, store: Store) -> None:
    """Events that are said once are known by their digests, also those that were given up."""
    store.put(AcceptJob(job_row(), None, durability=DURABILITY))
    for index, text in enumerate("abcab"):
        store.put(AppendJournal("J", event(index, text, once=text != "c")))
        await store.flushed()
    whole = [(0, said("a")), (1, said("b")), (3, said("a")), (4, said("b"))]
    assert await all_said(store) == whole
    store.put(TrimJournal("J", 4))
    store.put(KeepMemo("J", memo()))
    await store.flushed()
    assert await all_said(store) == whole
    await engine.left(store)
    assert await all_said(store) == whole
    assert await store.memos("J") == [memo()]
    assert (await store.recover()).durable["J"][1].first == 4


async def test_a_child_is_kept_until_its_parents_end(store: Store, feeder: Feeder) -> None:
    """No bound gives up a child that ended long ago, while its parent may ask for it."""
    store.put(AcceptJob(job_row(), None, durability=DURABILITY))
    for job_id, kept in (("C", True), ("D", False)):
        store.put(AcceptJob(job_row(job_id), None, "J", kept=kept))
        store.put(end(job_id, at=0.7, durable=False))
    feeder.expire(before=5.0, jobs=0, forgotten=["C"])
    await store.flushed()
    assert await store.job("C") is not None
    assert await store.job("D") is None
    store.put(end())
    feeder.expire(before=0.5, jobs=1)
    await store.flushed()
    assert await store.job("C") is None
    feeder.expire(before=5.0)
    await store.flushed()
    assert await store.job("J") is None


async def test_memos_go_with_their_job(engine: Engine, store: Store, feeder: Feeder) -> None:
    """Inputs and memos are booked for the principal, and nothing of them is left in the end."""
    store.put(AcceptJob(job_row(), None, durability=DURABILITY))
    await store.flushed()
    before = (await store.stored_bytes())["alice"]
    for number in range(100):
        store.put(KeepMemo("J", memo(f"{number:03}", bytes(97))))
    store.put(KeepMemo("J", memo("000", bytes(47))))
    await store.flushed()
    assert (await store.stored_bytes())["alice"] == before + 100 * 100 - 50
    store.put(end())
    await store.flushed()
    assert len(await store.memos("J")) == 100
    feeder.expire(before=5.0)
    await store.flushed()
    assert await engine.left(store) == {}
    assert (await store.stored_bytes()).get("alice", 0) == 0


async def test_memos_survive_a_restart(path: Path) -> None:
    """A store that is opened again has what it was given."""
    async with running(on(path)) as store:
        store.put(AcceptJob(job_row(), None, durability=DURABILITY))
        store.put(AppendJournal("J", event(0, "x")))
        await store.put(KeepMemo("J", memo(index=1))).committed()
    async with running(on(path)) as store:
        assert await store.memos("J") == [memo(index=1)]
        assert await all_said(store) == [(0, said("x"))]
        assert (await store.recover()).durable["J"][0] == DURABILITY


@pytest.fixture
def version_7(tmp_path: Path) -> Path:
    """A copy of the store of version 7."""
    path = tmp_path / "arcp.db"
    path.write_bytes(gzip.decompress(VERSION_7.read_bytes()))
    return path


async def test_a_file_of_version_7_is_brought_up_to_date(version_7: Path) -> None:
    """Its jobs, journals and bytes are kept, and it takes durable jobs from then on."""
    async with running(on(version_7)) as store:
        rows = await store.jobs(JobQuery(principal="alice", limit=9))
        assert sorted(row.agent.partition("@")[0] for row in rows) == sorted(
            ("shopper", "sleeper", "team", "echo", "echo")
        )
        owed = await store.owed({row.job_id: 0 for row in rows}, 99, 99_999)
        assert len(owed) == sum(row.length for row in rows) == 20
        assert not any(entry.once for _, entry in owed)
        assert (await store.stored_bytes())["alice"] == 12_328
        found = await store.recover()
        assert len(found.unfinished) == 1
        assert not found.durable
        store.put(AcceptJob(job_row(), None, durability=DURABILITY))
        await store.put(KeepMemo("J", memo())).committed()
        assert await store.memos("J") == [memo()]
        while await store._write(clean_piece):
            pass
