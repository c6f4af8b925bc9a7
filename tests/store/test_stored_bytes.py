"""What each principal takes in the store is known, and bounded."""

from __future__ import annotations

from pathlib import Path

from arcp_trio.store.interface import Store
from arcp_trio.store.records import Entry
from arcp_trio.store.retention import ROW_BYTES
from arcp_trio.store.writes import (
    AppendJournal,
    AppendLog,
    DropSession,
    Expire,
    MoveFloor,
)
from tests.store.engines import Feeder, job_row, key_row, running
from tests.store.files import on

EVENT = 10_000


def do(feeder: Feeder, job_id: str, principal: str = "alice") -> None:
    """Store a finished job with one large event."""
    feeder.accept(job_row(job_id, principal=principal))
    feeder.store.put(AppendJournal(job_id, Entry(0, 1, bytes(EVENT))))
    feeder.emit(job_id)
    feeder.finish(job_id)


async def expired(store: Store, each: float, total: float) -> set[str]:
    """Give up what is past these bounds; return the ids of the jobs that are left."""
    await store.flushed()
    await store.put(
        Expire(now=0, finished_before=-1, finished_jobs=99, bytes_each=each, bytes_total=total)
    ).committed()
    ids = [letter + number for letter in "ABC" for number in "0123456789"]
    return {job_id for job_id in ids if await store.job(job_id) is not None}


async def test_everything_is_booked(store: Store, feeder: Feeder) -> None:
    """Jobs, entries, sessions, logs and keys are booked as they come and as they go."""
    booked: list[int] = []

    async def change() -> int:
        await store.flushed()
        booked.append((await store.stored_bytes()).get("alice", 0))
        return booked[-1] - sum(booked[-2:-1])

    feeder.session()
    assert await change() == ROW_BYTES
    feeder.job(key=key_row())
    assert await change() == 2 * (ROW_BYTES + len(b"{}"))
    store.put(AppendJournal("J", Entry(0, 1, bytes(EVENT))))
    assert EVENT <= await change() <= EVENT + 100
    store.put(AppendLog("S", 0, [], 0, {}, [], [], log_bytes=700))
    assert await change() == 700
    store.put(MoveFloor("S", 1, acked=False, log_bytes=300))
    assert await change() == -400
    store.put(DropSession("S"))
    assert await change() == -300 - ROW_BYTES


async def test_nothing_is_booked_for_what_is_gone(store: Store, feeder: Feeder) -> None:
    """A job that is forgotten takes no bytes, and neither do entries that were given up."""
    do(feeder, "A0")
    await store.flushed()
    assert EVENT < (await store.stored_bytes())["alice"] < EVENT + 2 * ROW_BYTES
    feeder.expire(before=1.0)
    await store.flushed()
    assert (await store.stored_bytes()).get("alice", 0) == 0


async def test_a_principal_past_its_bound_loses_its_oldest_jobs(
    store: Store, feeder: Feeder
) -> None:
    """Past the bound for one principal its oldest finished jobs go; others keep theirs."""
    for number in range(8):
        do(feeder, f"A{number}")
    for number in range(4):
        do(feeder, f"B{number}", "bob")
    bobs = {f"B{number}" for number in range(4)}
    assert await expired(store, 5.5 * EVENT, 99 * EVENT) == bobs | {"A4", "A5", "A6", "A7"}
    assert await expired(store, 5.5 * EVENT, 99 * EVENT) == bobs | {"A4", "A5", "A6", "A7"}


async def test_past_the_bound_for_all_those_with_most_lose_theirs(
    store: Store, feeder: Feeder
) -> None:
    """Past the bound for all principals, those that take most lose their oldest finished jobs."""
    for number in range(8):
        do(feeder, f"A{number}")
    for number in range(2):
        do(feeder, f"B{number}", "bob")
    feeder.accept(job_row("C0", principal="carol"))
    kept = await expired(store, 99 * EVENT, 8 * EVENT)
    assert kept == {"B0", "B1", "C0", *(f"A{number}" for number in range(8 - len(kept) + 3, 8))}
    assert len(kept) >= 6


async def test_what_is_booked_survives_a_restart(path: Path) -> None:
    """A store that is opened again knows what its principals take."""
    async with running(on(path)) as store:
        do(Feeder(store), "A0")
        await store.flushed()
        booked = await store.stored_bytes()
    async with running(on(path)) as store:
        assert await store.stored_bytes() == booked
