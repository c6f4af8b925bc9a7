"""The numbers that a job's first session gave to its entries, kept as long as the job."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
import trio
from hypothesis import strategies as st

from arcp_trio.store import looking
from arcp_trio.store.interface import Store
from arcp_trio.store.records import Inline, Mark, Range
from arcp_trio.store.sqlite import SqliteStore, _cleaning
from arcp_trio.store.sqlite._cleaning import clean_piece
from arcp_trio.store.writes import DropSession, MoveFloor, TrimJournal
from tests.store.engines import Engine, Feeder, given_each_engine, row_counts, running

FIRST = {"J": "S", "K": "S", "L": "T"}
"""The session that first submitted each of three jobs."""


@pytest.fixture(autouse=True, scope="module")
def _small_pieces() -> Generator[None]:
    """Use pieces of a few rows, so that small logs have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(looking, "PAGE", 2)
        patch.setattr(_cleaning, "PIECE_ROWS", 2)
        patch.setattr(_cleaning, "LOG_ROWS", 2)
        patch.setattr(_cleaning, "ROW_RUNS", 2)
        yield


async def last_seq(store: Store, job_id: str = "J") -> int:
    """Return the `last_seq` that a listing shows."""
    await store.flushed()
    row = await store.job(job_id)
    assert row is not None
    return row.last_seq


async def indexes(store: Store, top: int, job_id: str = "J") -> list[int | None]:
    """Return `index_after` of each number up to `top`."""
    await store.flushed()
    return [await store.index_after(job_id, seq) for seq in range(top + 1)]


def interleaved(feeder: Feeder, count: int) -> None:
    """Number the jobs J and K in turns: J has the odd numbers of S, K the even ones."""
    for index in range(count):
        items = [Range(2 * index + 1, "J", index, 1), Range(2 * index + 2, "K", index, 1)]
        feeder.emit("J")
        feeder.emit("K")
        cursors = {"J": index + 1, "K": index + 1}
        feeder.log(items=items, top=2 * index + 2, cursors=cursors)


def two_jobs(feeder: Feeder) -> None:
    """Store the jobs J and K, which S submitted and watches."""
    feeder.session()
    for job_id in "JK":
        feeder.job(job_id)
        feeder.watch(job_id=job_id)


JS = [0] + [n // 2 for n in range(2, 22)] + [10]
"""`index_after` of the job J for each number, with ten entries of each job."""


async def test_each_number_leads_behind_its_entry(store: Store, feeder: Feeder) -> None:
    """A number of another job leads to the same index as the number before it."""
    two_jobs(feeder)
    assert await indexes(store, 3) == [0] * 4
    assert await last_seq(store) == 0
    interleaved(feeder, 10)
    assert await indexes(store, 21) == JS
    assert await indexes(store, 4, "K") == [0, 0, 1, 1, 2]
    assert (await last_seq(store), await last_seq(store, "K")) == (19, 20)
    assert await store.index_after("J", 2**62) == 10
    assert await store.index_after("J", -1) == 0


@pytest.mark.parametrize("floor", [0, 3, 5, 6])
async def test_a_terminal_that_is_numbered_again_keeps_its_first_number(
    engine: Engine, store: Store, feeder: Feeder, floor: int
) -> None:
    """An entry's first number counts for histories, and its last one in listings."""
    feeder.session()
    feeder.job()
    feeder.watch()
    for _ in range(3):
        feeder.emit()
    feeder.log(items=[Range(1, "J", 0, 3)], top=3, cursors={"J": 3})
    for top in (4, 5, 6):
        feeder.log(items=[Range(top, "J", 2, 1)], top=top, cursors={"J": 3})
    await store.put(MoveFloor("S", floor, acked=True)).committed()
    await engine.left(store)
    assert await indexes(store, 7) == [0, 1, 2, 3, 3, 3, 3, 3]
    assert await last_seq(store) == 6


@pytest.mark.parametrize("floor", [1, 7, 20])
async def test_numbers_survive_acknowledgement_and_session(
    engine: Engine, store: Store, feeder: Feeder, floor: int
) -> None:
    """Numbers are kept when the log is freed, before and after its rows are deleted."""
    two_jobs(feeder)
    interleaved(feeder, 10)
    for gone in (MoveFloor("S", floor, acked=True), DropSession("S")):
        store.put(gone)
        assert await indexes(store, 21) == JS
        await engine.left(store)
        assert await indexes(store, 21) == JS
        assert (await last_seq(store), await last_seq(store, "K")) == (19, 20)


async def test_numbers_survive_the_end(engine: Engine, store: Store, feeder: Feeder) -> None:
    """Numbers are kept after the job's end, until its retention is over."""
    feeder.session()
    feeder.job()
    feeder.emit(count=2)
    feeder.finish()
    feeder.number_all()
    assert await last_seq(store) == 3
    await store.put(DropSession("S")).committed()
    await engine.left(store)
    assert await indexes(store, 4) == [0, 1, 2, 3, 3]
    assert await last_seq(store) == 3
    feeder.expire(before=1.0)
    assert await indexes(store, 4) == [None] * 5
    assert await engine.left(store) == {}


async def test_a_file_keeps_the_numbers(tmp_path: Path) -> None:
    """A store that is opened again has the numbers in the log and those moved from it."""
    path = tmp_path / "arcp.db"
    async with running(SqliteStore(path)) as store:
        feeder = Feeder(store)
        two_jobs(feeder)
        interleaved(feeder, 10)
        await store.put(MoveFloor("S", 9, acked=True)).committed()
        while await store._write(clean_piece):
            pass
    async with running(SqliteStore(path)) as store:
        assert await indexes(store, 21) == JS
        assert await last_seq(store) == 19


async def test_an_entry_without_a_number_comes_behind_those_before_it(
    store: Store, feeder: Feeder
) -> None:
    """An entry without a number follows those that were numbered before it."""
    feeder.session()
    feeder.job()
    feeder.watch()
    feeder.emit(count=5)
    feeder.log(items=[Range(1, "J", 1, 1)], top=1, cursors={"J": 3})
    assert await indexes(store, 2) == [0, 2, 2]
    feeder.log(items=[Range(2, "J", 3, 1)], top=2, cursors={"J": 5})
    assert await indexes(store, 3) == [0, 2, 4, 4]
    assert await last_seq(store) == 2


async def test_only_the_first_session_counts(engine: Engine, store: Store, feeder: Feeder) -> None:
    """Numbers of other sessions that watch the job do not count."""
    for session_id in "ST":
        feeder.session(session_id, token=session_id.encode())
    feeder.job()
    feeder.emit(count=4)
    feeder.watch("S")
    feeder.watch("T")
    feeder.log("T", [Inline(1, b"x"), Range(2, "J", 0, 4)], top=5, cursors={"J": 4}, ended=["J"])
    assert await last_seq(store) == 0
    assert await indexes(store, 5) == [0] * 6
    feeder.log("S", [Range(1, "J", 0, 2)], top=2, cursors={"J": 2})
    for session_id in "TS":
        await store.put(DropSession(session_id)).committed()
        await engine.left(store)
        assert await last_seq(store) == 2
        assert await indexes(store, 5) == [0, 1, 2, 2, 2, 2]


async def test_a_session_that_is_gone_numbers_nothing(store: Store, feeder: Feeder) -> None:
    """A job whose session is gone has no numbers, and an unknown job has None."""
    feeder.job()
    feeder.emit()
    assert await indexes(store, 1) == [0, 0]
    assert await indexes(store, 1, "X") == [None, None]


async def test_a_long_job_leaves_little(tmp_path: Path) -> None:
    """Consecutive batches become one run, however often the log is cleared."""
    async with running(SqliteStore(tmp_path / "arcp.db", synchronous="OFF")) as store:
        feeder = Feeder(store)
        feeder.session()
        feeder.job()
        for top in range(3, 153, 3):
            feeder.log(items=[Range(top - 2, "J", top - 3, 3)], top=top, cursors={"J": top})
            await store.put(MoveFloor("S", top - 3, acked=True)).committed()
            while await store._write(clean_piece):
                pass
        assert (await store._read(row_counts))["numbering"] == 1
        assert await indexes(store, 151) == [*range(151), 150]


# -- against a plain model

Step: TypeAlias = "tuple[str, str, str, int]"

STEPS = st.one_of(
    st.tuples(st.just("number"), st.sampled_from("ST"), st.sampled_from("JKL"), st.integers(1, 4)),
    st.tuples(st.just("pass over"), st.sampled_from("ST"), st.sampled_from("JKL"), st.just(1)),
    st.tuples(st.just("other"), st.sampled_from("ST"), st.just(""), st.integers(0, 1)),
    st.tuples(st.just("ack"), st.sampled_from("ST"), st.just(""), st.integers(0, 40)),
    st.tuples(st.just("drop"), st.sampled_from("ST"), st.just(""), st.just(0)),
    st.tuples(st.just("trim"), st.just(""), st.sampled_from("JKL"), st.integers(1, 20)),
    st.just(("tidy", "", "", 0)),
)


class Model:
    """A model: two sessions number three jobs, and the first of each job is kept in a list."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine, self._store = engine, store
        self._feeder = feeder = Feeder(store)
        self.tops, self._floors = {"S": 0, "T": 0}, {"S": 0, "T": 0}
        self._cursors = {(session_id, job_id): 0 for session_id in "ST" for job_id in FIRST}
        self._lengths, self._bases = dict.fromkeys(FIRST, 0), dict.fromkeys(FIRST, 0)
        self.numbers: dict[str, list[tuple[int, int]]] = {job_id: [] for job_id in FIRST}
        for session_id in "ST":
            feeder.session(session_id, token=session_id.encode())
        for job_id, session_id in FIRST.items():
            feeder.job(job_id, session_id=session_id)
        for session_id in "ST":
            feeder.log(session_id, top=0, cursors=dict.fromkeys(FIRST, 0), watched=[*FIRST])

    async def step(self, what: str, session_id: str, job_id: str, count: int) -> None:
        """Take one step, if the session still exists."""
        if session_id and session_id not in self.tops:
            return
        store = self._store
        match what:
            case "number" | "pass over":
                self._number(session_id, job_id, count, told=what == "number")
            case "other":
                top = self.tops[session_id] = self.tops[session_id] + count
                item = Inline(top, b"inline") if count else Mark(top, 0, b"mark")
                self._feeder.log(session_id, [item], top=top)
            case "ack":
                floor = max(self._floors[session_id], min(count, self.tops[session_id]))
                self._floors[session_id] = floor
                store.put(MoveFloor(session_id, floor, acked=True))
            case "drop":
                del self.tops[session_id]
                store.put(DropSession(session_id))
            case "trim":
                base = max(self._bases[job_id], min(count, self._lengths[job_id]))
                self._bases[job_id] = base
                store.put(TrimJournal(job_id, base))
            case _:
                await store.flushed()
                await self._engine.left(store)

    def _number(self, session_id: str, job_id: str, count: int, *, told: bool) -> None:
        first, top = self._cursors[session_id, job_id], self.tops[session_id]
        cursor = self._cursors[session_id, job_id] = first + count
        if cursor > self._lengths[job_id]:
            self._feeder.emit(job_id, cursor - self._lengths[job_id])
            self._lengths[job_id] = cursor
        items = [Range(top + 1, job_id, first, count)] if told else []
        if told:
            self.tops[session_id] += count
        if told and FIRST[job_id] == session_id:
            self.numbers[job_id] += [(top + 1 + n, first + n) for n in range(count)]
        self._feeder.log(session_id, items, top=self.tops[session_id], cursors={job_id: cursor})

    async def check(self) -> None:
        """Check that each number leads where the model says, or to the start of the journal."""
        store = self._store
        await store.flushed()
        for job_id, numbers in self.numbers.items():
            row = await store.job(job_id)
            assert row is not None
            last = numbers[-1][0] if numbers else 0
            assert row.last_seq == last
            for seq in range(last + 2):
                expected = max((index + 1 for n, index in numbers if n <= seq), default=0)
                found = await store.index_after(job_id, seq)
                assert found == max(expected, self._bases[job_id])


@given_each_engine(steps=st.lists(STEPS, max_size=25))
def test_numbers_are_as_they_were_given(engine: Engine, steps: Sequence[Step]) -> None:
    """Numbers agree with the model, whatever is acknowledged, trimmed, dropped and cleared."""

    async def main() -> None:
        async with engine.running() as store:
            model = Model(engine, store)
            for step in steps:
                await model.step(*step)
            await model.check()
            await model.step("tidy", "", "", 0)
            await model.check()

    trio.run(main)
