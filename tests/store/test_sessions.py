"""Sessions as they are stored: rows, tokens, cursors and floors."""

from __future__ import annotations

import pytest

from arcp_trio.store.interface import LogTrimmed, Store
from arcp_trio.store.records import Inline, Mark, Range, SessionRow
from arcp_trio.store.writes import AppendLog, DropSession, MoveFloor, RotateToken
from tests.store.engines import Engine, Feeder, read_all, session_row


async def row_of(store: Store) -> SessionRow:
    """Return the stored row of session S."""
    await store.flushed()
    row = await store.session("S")
    assert row is not None
    return row


def rotation(token: bytes, *spares: bytes) -> RotateToken:
    """Return a rotation with the features and the dialect of `session_row`."""
    return RotateToken("S", token, spares, frozenset({"ack"}), "standard")


async def test_a_session_is_stored_as_it_was_put(store: Store, feeder: Feeder) -> None:
    """A session is read as it was put, and other ids have no row."""
    feeder.session()
    assert await row_of(store) == session_row()
    assert await store.session("T") is None


async def test_what_is_read_is_not_what_is_stored(store: Store, feeder: Feeder) -> None:
    """Changing the watches of a row that was read does not change the store."""
    feeder.session()
    feeder.job()
    feeder.watch()
    (await row_of(store)).watches.clear()
    assert (await row_of(store)).watches == {"J": 0}


async def test_a_batch_moves_everything_together(store: Store, feeder: Feeder) -> None:
    """A batch changes top, number of batches, cursors and watches together."""
    feeder.session()
    for job_id in ("J", "K"):
        feeder.job(job_id)
        feeder.emit(job_id, 2)
    feeder.log(items=[Mark(0, 0, b"m")], top=0, cursors={"J": 0, "K": 0}, watched=["J", "K"])
    row = await row_of(store)
    assert (row.top, row.log_rows, row.watches) == (0, 1, {"J": 0, "K": 0})
    items = [Range(1, "K", 0, 2), Range(3, "J", 0, 1)]
    feeder.log(items=items, top=3, cursors={"J": 1, "K": 2}, ended=["K"])
    row = await row_of(store)
    assert (row.top, row.log_rows, row.watches) == (3, 2, {"J": 1})


async def test_a_watch_can_begin_and_end_in_one_batch(store: Store, feeder: Feeder) -> None:
    """A watch that begins and ends in one batch leaves nothing."""
    feeder.session()
    feeder.job()
    feeder.finish()
    feeder.number_all()
    assert (await row_of(store)).watches == {}


async def test_watching_what_is_gone_hurts_nobody(store: Store, feeder: Feeder) -> None:
    """A batch with a watch of a forgotten job is stored."""
    feeder.session()
    feeder.job()
    feeder.finish()
    feeder.expire(before=1.0)
    feeder.watch()
    assert (await row_of(store)).watches == {"J": 0}
    await store.put(DropSession("S")).committed()


# -- tokens


@pytest.mark.spec("6.3-1")
async def test_the_newest_token_and_its_spares_find_the_session(
    store: Store, feeder: Feeder
) -> None:
    """Only the tokens of the last rotation find the session."""

    async def known() -> set[bytes]:
        await store.flushed()
        tokens = (b"token", b"second", b"third")
        return {token for token in tokens if await store.session_of_token(token) == "S"}

    feeder.session()
    assert await known() == {b"token"}
    store.put(rotation(b"second", b"token"))
    assert await known() == {b"token", b"second"}
    store.put(rotation(b"second"))
    assert await known() == {b"second"}
    store.put(rotation(b"third", b"second", b"token"))
    assert await known() == {b"second", b"token", b"third"}
    row = await row_of(store)
    assert (row.token_digest, row.spare_digests) == (b"third", (b"second", b"token"))


async def test_a_rotation_after_a_resume_with_the_spare(store: Store, feeder: Feeder) -> None:
    """After a resume with the spare token, the newest token before it is forgotten."""
    feeder.session()
    store.put(rotation(b"lost", b"token"))
    await store.put(rotation(b"third", b"token")).committed()
    assert await store.session_of_token(b"lost") is None
    assert await store.session_of_token(b"token") == "S"
    assert await store.session_of_token(b"third") == "S"


async def test_a_rotation_brings_features_and_dialect(store: Store, feeder: Feeder) -> None:
    """A rotation stores features and dialect."""
    feeder.session()
    store.put(RotateToken("S", b"second", (b"token",), frozenset({"progress"}), "python"))
    row = await row_of(store)
    assert row.features == {"progress"}
    assert row.dialect == "python"


async def test_two_sessions_have_their_own_tokens(store: Store, feeder: Feeder) -> None:
    """Dropping one session keeps the tokens of the other."""
    feeder.session("S", token=b"one")
    feeder.session("T", token=b"two")
    await store.put(DropSession("S")).committed()
    assert await store.session_of_token(b"one") is None
    assert await store.session_of_token(b"two") == "T"


# -- floors


@pytest.mark.spec("6.5-2")
async def test_a_floor_frees_what_is_behind_it(store: Store, feeder: Feeder) -> None:
    """Numbers up to the floor cannot be replayed, and later ones can."""
    feeder.session()
    feeder.job()
    feeder.emit(count=6)
    feeder.log(items=[Mark(0, 0, b"m0"), Range(1, "J", 0, 3), Mark(3, 0, b"m3")], top=3)
    feeder.log(items=[Inline(4, b"i4"), Range(5, "J", 3, 2), Mark(6, 1, b"m6")], top=6)
    await store.put(MoveFloor("S", 3, acked=True)).committed()
    assert [await store.covers("S", after) for after in range(7)] == [False] * 3 + [True] * 4
    rest = [(0, b"m3"), (4, b"i4"), (5, b"J:3"), (6, b"J:4"), (0, b"m6")]
    assert await read_all(store.replay("S", 3, 6, 2)) == rest
    with pytest.raises(LogTrimmed):
        await read_all(store.replay("S", 2, 6, 2))


async def test_a_floor_within_a_range(store: Store, feeder: Feeder) -> None:
    """A floor within a range frees the numbers up to it."""
    feeder.session()
    feeder.job()
    feeder.emit(count=5)
    feeder.log(items=[Range(1, "J", 0, 5)], top=5)
    await store.put(MoveFloor("S", 2, acked=False)).committed()
    assert [await store.covers("S", after) for after in range(6)] == [False] * 2 + [True] * 4
    assert await read_all(store.replay("S", 2, 5, 1)) == [(3, b"J:2"), (4, b"J:3"), (5, b"J:4")]


async def test_eviction_is_no_acknowledgement(store: Store, feeder: Feeder) -> None:
    """Only an acknowledgement of the client sets `acked`, and it stays set."""
    feeder.session()
    feeder.log(items=[Inline(1, b"x"), Inline(2, b"y")], top=2)
    store.put(MoveFloor("S", 1, acked=False))
    assert not (await row_of(store)).acked
    store.put(MoveFloor("S", 1, acked=True))
    assert (await row_of(store)).acked
    store.put(MoveFloor("S", 2, acked=False))
    row = await row_of(store)
    assert (row.acked, row.floor) == (True, 2)


# -- the end


async def test_a_dropped_session_leaves_nothing(
    engine: Engine, store: Store, feeder: Feeder
) -> None:
    """A dropped session leaves no row, token, log or watch, nor an expired journal."""
    feeder.session()
    store.put(rotation(b"second", b"token"))
    feeder.job()
    feeder.emit(count=3)
    feeder.log(
        items=[Mark(0, 0, b"m"), Range(1, "J", 0, 2)], top=2, cursors={"J": 2}, watched=["J"]
    )
    feeder.finish()
    feeder.expire(before=1.0)
    await store.flushed()
    assert await store.owed({"J": 2}, 10, 1_000)
    await store.put(DropSession("S")).committed()
    assert await store.session("S") is None
    assert await store.session_of_token(b"second") is None
    assert await engine.left(store) == {}


async def test_what_follows_the_last_number_can_be_given_up(store: Store, feeder: Feeder) -> None:
    """A floor above the top gives up the promises after it: a replay of them says so."""
    feeder.session()
    feeder.log(items=[Inline(1, b"one"), Mark(1, 0, b"mark")], top=1)
    await store.put(MoveFloor("S", 2, acked=False)).committed()
    assert not await store.covers("S", 1)
    with pytest.raises(LogTrimmed):
        await store.replay("S", 1, 1, 1).next(10, 1_000)
    feeder.log(items=[Mark(1, 1, b"more"), Inline(2, b"two"), Mark(2, 1, b"last")], top=2)
    await store.flushed()
    assert await store.covers("S", 2)
    assert await read_all(store.replay("S", 2, 2, 2)) == [(0, b"last")]


async def test_the_size_of_a_log_is_as_it_was_written(store: Store, feeder: Feeder) -> None:
    """The size that came with the last write is in the row."""
    feeder.session()
    store.put(AppendLog("S", 0, [Mark(0, 0, b"mark")], 0, {}, [], [], log_bytes=4))
    assert (await row_of(store)).log_bytes == 4
    store.put(MoveFloor("S", 1, acked=False, log_bytes=0))
    assert (await row_of(store)).log_bytes == 0
