"""Logs: replays of resumes, compared with a plain model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import attrs
import pytest
import trio
from hypothesis import strategies as st

from arcp_trio.store import looking
from arcp_trio.store.interface import JournalTrimmed, LogTrimmed, Replay, Store
from arcp_trio.store.memory import engine as memory_engine
from arcp_trio.store.records import Inline, LogItem, Mark, NumberedTail, Range
from arcp_trio.store.writes import MoveFloor, TrimJournal
from tests.store.engines import Engine, Feeder, given_each_engine, read_all, tail

JOBS = ("J", "K", "L")

# A batch is a list of steps: ("events", job, count), ("inline",) or ("mark",).
Step: TypeAlias = "tuple[str] | tuple[str, str, int]"

STEPS = st.one_of(
    st.tuples(st.just("events"), st.sampled_from(JOBS), st.integers(1, 5)),
    st.just(("inline",)),
    st.just(("mark",)),
)
BATCHES = st.lists(st.lists(STEPS, min_size=1, max_size=5), max_size=12)
PIECES = st.tuples(st.integers(1, 7), st.integers(1, 30))


@attrs.frozen
class Sent:
    """A frame of a session."""

    place: int
    """Its number, or the number after which it stands."""
    row: int
    frame: NumberedTail
    entry: tuple[str, int] | None = None
    """The journal entry that it is; None for an inline frame or a mark."""

    @property
    def numbered(self) -> bool:
        """Return whether the frame has a number."""
        return self.frame[0] > 0


class Model:
    """A model of a log: the session's frames in a list."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.top = 0
        self.rows = 0
        self.floor = 0
        self.bases = dict.fromkeys(JOBS, 0)
        self.cursors = dict.fromkeys(JOBS, 0)

    def replay(self, after: int, top: int, rows: int) -> list[Sent]:
        """Return the frames owed to a resume at `after` that began at `top` and `rows` batches."""
        return [
            sent
            for sent in self.sent
            if (after < sent.place <= top if sent.numbered else after <= sent.place <= top)
            and (sent.numbered or sent.row < rows)
        ]

    def gone(self, sent: Sent) -> bool:
        """Return whether the journal entry of a frame was given up."""
        return sent.entry is not None and sent.entry[1] < self.bases[sent.entry[0]]

    def covers(self, after: int) -> bool:
        """Return whether everything after `after` can still be replayed."""
        behind = [sent for sent in self.sent if sent.numbered and sent.place > after]
        return after >= self.floor and not any(map(self.gone, behind))

    def batch(self, steps: Sequence[Step]) -> list[LogItem]:
        """Number a batch, and return the items of its log row."""
        items: list[LogItem] = []
        for step in steps:
            match step:
                case ("events", str(job_id), int(count)):
                    items.append(Range(self.top + 1, job_id, self.cursors[job_id], count))
                    for _ in range(count):
                        index = self.cursors[job_id]
                        self.cursors[job_id] += 1
                        self._number(tail(job_id, index), (job_id, index))
                case ("inline",):
                    said = f"inline {self.top}".encode()
                    self._number(said)
                    items.append(Inline(self.top, said))
                case _:
                    said = f"mark {len(self.sent)}".encode()
                    self.sent.append(Sent(self.top, self.rows, (0, said)))
                    items.append(Mark(self.top, self.rows, said))
        self.rows += 1
        return items

    def _number(self, said: bytes, entry: tuple[str, int] | None = None) -> None:
        self.top += 1
        self.sent.append(Sent(self.top, self.rows, (self.top, said), entry))


class Pair:
    """A store and a model, which get the same writes."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.model = Model()
        self._feeder = Feeder(store)
        self._feeder.session()
        for job_id in JOBS:
            self._feeder.job(job_id)

    async def batch(self, steps: Sequence[Step]) -> None:
        """Emit entries and append a batch that numbers them."""
        for step in steps:
            if len(step) == 3:
                self._feeder.emit(step[1], step[2])
        items = self.model.batch(steps)
        cursors = dict(self.model.cursors)
        await self._feeder.log(items=items, top=self.model.top, cursors=cursors).committed()

    async def floor(self, seq: int) -> None:
        """Move the floor to this number."""
        self.model.floor = max(self.model.floor, min(seq, self.model.top))
        await self.store.put(MoveFloor("S", self.model.floor, acked=True)).committed()

    async def trim(self, job_id: str, base: int) -> None:
        """Give up entries of a journal."""
        bases, length = self.model.bases, self.model.cursors[job_id]
        bases[job_id] = max(bases[job_id], min(base, length))
        await self.store.put(TrimJournal(job_id, bases[job_id])).committed()


def frames(sent: Sequence[Sent]) -> list[NumberedTail]:
    """Return frames as they are sent."""
    return [each.frame for each in sent]


def check_bounds(piece: Sequence[NumberedTail], most: int, size: int) -> None:
    """Check that a piece is within its bounds, but for its last frame and the marks after it."""
    numbered = [place for place, (seq, _) in enumerate(piece) if seq]
    counted = piece[: numbered[-1] + 1] if numbered else []
    assert len(counted) <= most
    assert sum(len(said) for _, said in counted[:-1]) < size


async def read_pieces(replay: Replay, data: st.DataObject) -> list[NumberedTail]:
    """Return all frames of a replay, read in pieces of random bounds."""
    found: list[NumberedTail] = []
    while True:
        most, size = data.draw(PIECES)
        piece = await replay.next(most, size)
        check_bounds(piece, most, size)
        if not piece:
            return found
        found += piece


@pytest.mark.spec("6.3-3", "1.0/6.3-2")
@given_each_engine(batches=BATCHES, floor=st.integers(0, 40), data=st.data())
def test_a_replay_from_anywhere_is_what_was_sent(
    engine: Engine, batches: list[list[Step]], floor: int, data: st.DataObject
) -> None:
    """A replay from any number at or above the floor has the frames that were sent, in order."""

    async def main() -> None:
        async with engine.running() as store:
            pair = Pair(store)
            model = pair.model
            for steps in batches:
                await pair.batch(steps)
            await pair.floor(floor)
            for after in range(model.floor, model.top + 1):
                replay = store.replay("S", after, model.top, model.rows)
                expected = model.replay(after, model.top, model.rows)
                assert await read_pieces(replay, data) == frames(expected)

    trio.run(main)


@given_each_engine(
    before=BATCHES,
    after=st.integers(0, 40),
    meanwhile=st.lists(
        st.lists(STEPS, min_size=1, max_size=4) | st.integers(0, 40),
        max_size=10,
    ),
    data=st.data(),
)
def test_a_log_may_change_while_it_is_replayed(
    engine: Engine,
    before: list[list[Step]],
    after: int,
    meanwhile: list[list[Step] | int],
    data: st.DataObject,
) -> None:
    """Later batches, and acknowledgements of frames already read, do not change a replay."""

    async def main() -> None:
        async with engine.running() as store:
            pair = Pair(store)
            model = pair.model
            for steps in before:
                await pair.batch(steps)
            start = min(after, model.top)
            await store.flushed()
            replay = store.replay("S", start, model.top, model.rows)
            expected = frames(model.replay(start, model.top, model.rows))
            found: list[NumberedTail] = []
            for batch_or_ack in meanwhile:
                most, size = data.draw(PIECES)
                found += await replay.next(most, size)
                if isinstance(batch_or_ack, list):
                    await pair.batch(batch_or_ack)
                else:
                    handed_out = max([start, *(seq for seq, _ in found)])
                    await pair.floor(min(batch_or_ack, handed_out))
            assert found + await read_pieces(replay, data) == expected

    trio.run(main)


@pytest.mark.spec("6.3-4")
@given_each_engine(
    batches=BATCHES,
    after=st.integers(0, 40),
    pieces=st.integers(0, 3),
    floor=st.integers(0, 60),
    trims=st.lists(st.tuples(st.sampled_from(JOBS), st.integers(1, 20)), max_size=2),
    data=st.data(),
)
def test_a_replay_never_has_a_hole(
    engine: Engine,
    batches: list[list[Step]],
    after: int,
    pieces: int,
    floor: int,
    trims: list[tuple[str, int]],
    data: st.DataObject,
) -> None:
    """A replay is complete, or raises because something was given up."""

    async def main() -> None:
        async with engine.running() as store:
            pair = Pair(store)
            model = pair.model
            for steps in batches:
                await pair.batch(steps)
            start = min(after, model.top)
            await store.flushed()
            replay = store.replay("S", start, model.top, model.rows)
            expected = model.replay(start, model.top, model.rows)
            found: list[NumberedTail] = []
            for _ in range(pieces):
                most, size = data.draw(PIECES)
                found += await replay.next(most, size)
            await pair.floor(floor)
            for job_id, base in trims:
                await pair.trim(job_id, base)
            rest = [sent for sent in expected[len(found) :] if sent.numbered]
            lost = any(sent.place <= model.floor or model.gone(sent) for sent in rest)
            complete = True
            try:
                while piece := await replay.next(*data.draw(PIECES)):
                    found += piece
            except (JournalTrimmed, LogTrimmed):
                complete = False
            assert complete is not lost
            whole = frames(expected)
            if complete:
                numbers = [frame for frame in whole if frame[0]]
                assert [frame for frame in found if frame[0]] == numbers
            else:
                assert found == whole[: len(found)]

    trio.run(main)


@pytest.mark.spec("6.3-4")
@given_each_engine(
    batches=BATCHES,
    floor=st.integers(0, 40),
    trims=st.lists(st.tuples(st.sampled_from(JOBS), st.integers(0, 20)), max_size=3),
)
def test_what_is_covered_can_be_replayed(
    engine: Engine, batches: list[list[Step]], floor: int, trims: list[tuple[str, int]]
) -> None:
    """`covers` is true for exactly the numbers after which nothing was given up."""

    async def main() -> None:
        async with engine.running() as store:
            pair = Pair(store)
            model = pair.model
            for steps in batches:
                await pair.batch(steps)
            await pair.floor(floor)
            for job_id, base in trims:
                await pair.trim(job_id, base)
            for after in range(model.top + 1):
                covered = model.covers(after)
                assert await store.covers("S", after) is covered
                if covered:
                    replay = store.replay("S", after, model.top, model.rows)
                    assert await read_all(replay) == frames(
                        model.replay(after, model.top, model.rows)
                    )

    trio.run(main)


async def test_a_replay_takes_no_promise_of_a_later_batch(store: Store, feeder: Feeder) -> None:
    """A mark that was stored after the replay began is not replayed."""
    feeder.session()
    feeder.log(items=[Mark(0, 0, b"old")], top=0)
    replay = store.replay("S", 0, 0, 1)
    await feeder.log(items=[Mark(0, 1, b"new")], top=0).committed()
    assert await read_all(replay) == [(0, b"old")]
    assert await read_all(store.replay("S", 0, 0, 2)) == [(0, b"old"), (0, b"new")]


async def test_a_full_piece_stops_before_a_promise_further_on(store: Store, feeder: Feeder) -> None:
    """The rest of a range comes before the mark after it, however the pieces are cut."""
    feeder.session()
    feeder.job()
    feeder.emit(count=600)
    await feeder.log(items=[Range(1, "J", 0, 600), Mark(600, 0, b"m")], top=600).committed()
    expected = [(n + 1, tail("J", n)) for n in range(600)] + [(0, b"m")]
    assert await read_all(store.replay("S", 0, 600, 1), frames=512) == expected


async def test_an_expired_journal_covers_nothing_that_went_to_it(
    store: Store, feeder: Feeder
) -> None:
    """After a job's retention, only resumes from its last number on are covered."""
    feeder.session()
    feeder.job()
    feeder.emit(count=2)
    feeder.finish()
    feeder.number_all()
    await feeder.log(items=[Inline(4, b"inline")], top=4).committed()
    assert [await store.covers("S", after) for after in range(5)] == [True] * 5
    await feeder.expire(before=1.0).committed()
    assert [await store.covers("S", after) for after in range(5)] == [False] * 3 + [True] * 2
    with pytest.raises(JournalTrimmed):
        await read_all(store.replay("S", 2, 4, 2))
    assert await read_all(store.replay("S", 3, 4, 2)) == [(4, b"inline")]


async def test_the_log_of_one_session_is_not_anothers(store: Store, feeder: Feeder) -> None:
    """Two sessions number the same entries independently."""
    feeder.job()
    feeder.emit(count=3)
    for session_id, first in (("S", 0), ("T", 1)):
        feeder.session(session_id, token=session_id.encode())
        feeder.log(session_id, [Range(1, "J", first, 2)], top=2)
    await store.flushed()
    assert await read_all(store.replay("S", 0, 2, 1)) == [(1, b"J:0"), (2, b"J:1")]
    assert await read_all(store.replay("T", 0, 2, 1)) == [(1, b"J:1"), (2, b"J:2")]


@pytest.mark.parametrize("gone", range(1, 9))
async def test_all_of_a_long_log_must_be_covered(
    store: Store, feeder: Feeder, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    """A missing entry is found in any piece of a long log."""
    monkeypatch.setattr(memory_engine, "LOOK_ITEMS", 3)
    monkeypatch.setattr(looking, "PAGE", 3)
    feeder.session()
    for seq in range(1, 9):
        feeder.job(f"J{seq}")
        feeder.emit(f"J{seq}")
        feeder.log(items=[Range(seq, f"J{seq}", 0, 1)], top=seq)
    await store.put(TrimJournal(f"J{gone}", 1)).committed()
    assert [await store.covers("S", after) for after in range(9)] == [
        after >= gone for after in range(9)
    ]
