"""A file that fails at any statement: nothing is lost, and clients see only what is stored."""

from __future__ import annotations

import copy
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import cast

import attrs
import pytest
from trio.testing import MockClock

from arcp_trio import MemoryStore, SqliteStore
from arcp_trio.nurseries import tasks_beside
from arcp_trio.store import housekeeping
from arcp_trio.store.errors import StoreError
from arcp_trio.store.replaying import ReplayPlace
from arcp_trio.store.sqlite import _rows
from arcp_trio.store.sqlite._snapshot import SqliteSnapshot
from arcp_trio.testing import TrioClock, WireRecorder
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.ids import token_digest
from tests.durability.faults import Faults, Statement, passing_time
from tests.durability.memories import PROMISES, Memory, remember
from tests.durability.story import Client, World, tell_story, two_clients

MANY = 1_000_000

PARTS = 5
"""Tests that share the stories of one kind of failure: there are hundreds, one per statement."""


def any_at_all(_: Statement) -> bool:
    """Return True: every statement of every connection counts."""
    return True


def writing(statement: Statement) -> bool:
    """Return whether a connection that writes executes the statement."""
    return not statement.reads


def reading(statement: Statement) -> bool:
    """Return whether the connection that reads executes the statement."""
    return statement.reads


def read_begun(statement: Statement) -> bool:
    """Return whether the statement is the first of a read."""
    return statement.reads and statement.sql.startswith("BEGIN")


def write_committed(statement: Statement) -> bool:
    """Return whether the statement is the last of a write."""
    return not statement.reads and statement.sql == "COMMIT"


class Witness:
    """Looks into the file for each frame that a client gets: it must be stored by then."""

    def __init__(self, path: Path) -> None:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        self.db = sqlite3.Connection(uri, uri=True, isolation_level=None)
        self.found = 0

    def look(self, client: Client, frame: Frame) -> None:
        """Check that what is stored is enough to send the client the same frame again."""
        number = frame.get("event_seq")
        if frame["type"] == "session.welcome":
            digest = token_digest(frame["payload"]["resume_token"])
            assert _rows.session_of_token(self.db, digest) == frame["session_id"]
        elif number is not None:
            self._find(client, frame, number - 1, number)
        elif frame["type"] in PROMISES and promise(frame) not in map(promise, client.frames):
            self._find(client, frame, client.highest, client.highest)

    def _find(self, client: Client, frame: Frame, after: int, top: int) -> None:
        replay = ReplayPlace(client.session_id, after, top, MANY).read(
            SqliteSnapshot(self.db), MANY, MANY
        )
        assert any(frame["id"].encode() in tail for _, tail in replay), f"not stored: {frame}"
        self.found += 1


def promise(frame: Frame) -> tuple[str, str]:
    """Return type and job of a promise: one that is given again is not stored again."""
    return frame["type"], frame["payload"].get("job_id", "")


def world_over(
    path: Path, recorder: WireRecorder | None = None, clock: TrioClock | None = None
) -> World:
    """Return a world over a file."""
    # World uses only the interface of the store.
    store = cast("MemoryStore", SqliteStore(path, synchronous="OFF"))
    return World(store, recorder=recorder, clock=clock)


# -- while it runs

LOUD = pytest.mark.logs_error("store in trouble")


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("counts", "seconds", "applied"),
    [
        pytest.param(writing, 0, False, marks=LOUD, id="writing"),
        pytest.param(write_committed, 0, True, marks=LOUD, id="commit not answered"),
        pytest.param(write_committed, 7, False, marks=LOUD, id="writing for long"),
        pytest.param(reading, 0, False, id="reading"),
        pytest.param(read_begun, 7, False, id="reading for long"),
    ],
)
async def test_every_statement_may_fail(
    counts: Callable[[Statement], bool],
    seconds: float,
    part: int,
    tmp_path: Path,
    mock_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    applied: bool,
) -> None:
    """With a failure of each statement in turn, once or longer, the story ends the same."""
    # Once in the story is enough, as each statement is a story of its own.
    monkeypatch.setattr(housekeeping, "PAUSE_SECONDS", 4.0)
    for n in count(1 + part, PARTS):
        faults = Faults(clock=mock_clock, counts=counts, first=n, seconds=seconds, applied=applied)
        try:
            await go_through(tmp_path / f"{n}.db", faults, monkeypatch)
        except BaseException as error:
            error.add_note(f"with the {n}th failing, {faults.failed}")
            raise
        if faults.failed is None:
            break
    assert n > 20


async def go_through(path: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go through the story over a file with these faults, and start another runtime over it."""
    with monkeypatch.context() as patch:
        faults.connect(patch)
        world = world_over(path)
        async with passing_time(faults.clock, world.store), world.runtime:
            memories = await live_through(world, path, faults)
    another = world_over(path, world.recorder, world.clock)
    async with passing_time(faults.clock, another.store), another.runtime:
        for memory in memories:
            await look_again(another, memory)


async def live_through(world: World, path: Path, faults: Faults) -> list[Memory]:
    """Go through the story, and return what the clients know at its end."""
    witness = Witness(path)
    world.look = witness.look
    faults.armed = True
    with closing(witness.db):
        async with two_clients(world) as clients:
            await tell_story(world, *clients)
    assert witness.found > 10
    for client in clients:
        assert set(client.closings) <= {1011}
    return [remember(client) for client in clients]


async def look_again(world: World, memory: Memory) -> None:
    """Check that a client that resumes gets the same bytes as before, and no more."""
    client = Client(world)
    client.session_id, client.token, client.floor = memory.session_id, memory.token, memory.floor
    async with tasks_beside() as nursery:
        nursery.start_soon(client.run)
        await client.until(lambda: memory.promised <= {f["id"] for f in client.frames})
    # The recorder has checked that a frame with an old number or id is the old frame.
    assert memory.promised == {frame["id"] for frame in client.frames}


# -- when it starts


@pytest.mark.logs_error("")
async def test_every_statement_of_a_start_may_fail(
    tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure of each statement of a start leaves a file that the next start can use."""
    left = await leave_behind(tmp_path, mock_clock)
    for name in ("left.db", "new.db"):
        for n in count(1):
            path = tmp_path / f"{n} {name}"
            copy_of_file(tmp_path / name, path)
            faults = Faults(clock=mock_clock, counts=any_at_all, first=n, armed=True)
            with monkeypatch.context() as patch:
                faults.connect(patch)
                await start(world_over(path), mock_clock)
            world = world_over(path, copy.deepcopy(left.recorder), left.clock)
            async with passing_time(mock_clock, world.store), world.runtime:
                if name == "left.db":
                    await find_end(world, left)
            if faults.failed is None:
                break
        assert n > 20


@attrs.frozen
class Left:
    """What the client of a killed runtime knew."""

    recorder: WireRecorder
    clock: TrioClock
    memory: Memory
    job_id: str
    """The id of the lost job."""


async def leave_behind(folder: Path, clock: MockClock) -> Left:
    """Leave `left.db`, the file of a killed runtime whose client had a job."""
    world = world_over(folder / "first.db")
    async with passing_time(clock, world.store), world.runtime, two_clients(world) as (client, _):
        job_id = await client.submit("waiter")
        await client.event_of(job_id)
        copy_of_file(folder / "first.db", folder / "left.db")
        return Left(copy.deepcopy(world.recorder), world.clock, remember(client), job_id)


def copy_of_file(path: Path, to: Path) -> None:
    """Return the bytes of the file and of its log, if they exist."""
    for suffix in ("", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copyfile(f"{path}{suffix}", f"{to}{suffix}")


async def start(world: World, clock: MockClock) -> None:
    """Start a runtime and leave it, unless the start fails."""
    async with passing_time(clock, world.store):
        with suppress(StoreError):
            async with world.runtime:
                pass


async def find_end(world: World, left: Left) -> None:
    """Check that the client gets what it knew, then the end of its job, and no more."""
    client, memory = Client(world), left.memory
    client.session_id, client.token = memory.session_id, memory.token
    async with tasks_beside() as nursery:
        nursery.start_soon(client.run)
        end = await client.end_of(left.job_id)
    assert (end["payload"]["code"], end["payload"]["retryable"]) == ("INTERNAL_ERROR", True)
    assert {frame["id"] for frame in client.frames} == memory.promised | {end["id"]}
