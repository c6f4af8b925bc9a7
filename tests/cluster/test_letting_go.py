"""Sessions of other nodes: they are asked to let go, for a time; then the session is stolen."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Limits, MemoryStore
from arcp_trio.runtime.cluster.moving import BUSY_SECONDS, LOOK_SECONDS, SharedParking
from arcp_trio.runtime.session.parking import Unparked
from arcp_trio.runtime.session.record import Record
from arcp_trio.store.records import SessionRow
from arcp_trio.store.shared import FoundSession, Moves, SessionPlace
from arcp_trio.store.shared_writes import ReleaseSession, TakeSession
from arcp_trio.store.writes import PutSession, Write
from arcp_trio.wire.errors import ResumeWindowExpired
from tests.inside import shared_parking
from tests.stage import make_runtime

ME, OTHER = 1, 2
ROW = SessionRow(
    session_id="sess_1",
    principal="alice",
    features=frozenset(),
    dialect="arcp",
    token_digest=b"digest",
)


class SharedMemory(MemoryStore, Moves):
    """A store in memory with one session, which nodes can have."""

    def __init__(self, place: SessionPlace) -> None:
        super().__init__()
        self.at = place
        self.stolen = 0
        self.locked = False
        """Whether the other node stands still within a group that has the session."""
        self.other_runs = True

    async def place(self, session_id: str) -> SessionPlace | None:
        """Return where the session is."""
        await trio.lowlevel.checkpoint()
        return self.at

    async def find(self, session_id: str) -> FoundSession | None:
        """Return the session, and where it is."""
        row = await self.session(session_id)
        return None if row is None else FoundSession(row, self.at)

    async def is_connected(self, node: int) -> bool:
        """Return whether the other node runs."""
        await trio.lowlevel.checkpoint()
        return self.other_runs

    async def take_when_unlocked(self, session_id: str, node: int | None, moves: int) -> bool:
        """Take the session from another node, which has it locked."""
        await trio.lowlevel.checkpoint()
        assert (self.at.node, self.at.moves) == (node, moves)
        assert self.locked
        self._be_taken()
        return True

    def _be_taken(self) -> None:
        self.stolen += self.at.node == OTHER
        self.at = SessionPlace(ME, 1)

    async def sessions_here(self) -> Sequence[str]:
        """Return the session, if this node has it."""
        await trio.lowlevel.checkpoint()
        return ["sess_1"] if self.at.node == ME else []

    async def _commit(self, writes: Sequence[Write]) -> frozenset[str]:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        refused = {sid for sid in map(self._refused, writes) if sid is not None}
        await super()._commit([each for each in writes if isinstance(each, PutSession)])
        return frozenset(refused)

    def _refused(self, write: Write) -> str | None:
        """Carry out a write about the place of the session, or return the session's id."""
        match write:
            case TakeSession(_, node, moves) if not self.locked:
                assert (self.at.node, self.at.moves) == (node, moves)
                self._be_taken()
            case ReleaseSession() if self.at.node == ME:
                self.at = SessionPlace(None, 1, write.seconds)
            case TakeSession() | ReleaseSession():
                return write.session_id
            case _:
                pass
        return None


@attrs.define
class Scene:
    """A node that takes the session."""

    store: SharedMemory
    parking: SharedParking
    asked: list[float] = attrs.field(factory=list[float])
    """When it asked the other node to let go."""

    async def take(self) -> tuple[Unparked | None, float]:
        """Take the session; return it, and how long it took."""
        began = trio.current_time()
        return await self.parking.take("sess_1", accept), trio.current_time() - began


async def accept(_record: Record) -> None:
    """Find nothing wrong with a resume."""


async def refuse(_record: Record) -> None:
    """Refuse a resume."""
    raise ResumeWindowExpired("no")


@asynccontextmanager
async def scene(
    place: SessionPlace, answer: Callable[[SharedMemory], Awaitable[bool]]
) -> AsyncGenerator[Scene]:
    """Run a node with a session that is at `place`, and how that place answers."""
    store = SharedMemory(place)
    limits = Limits(release_seconds=3, resume_window_seconds=100)
    runtime = make_runtime(store=store, limits=limits)
    asked: list[float] = []

    async def ask(_session_id: str, moves: int) -> bool:
        assert moves == 1
        asked.append(trio.current_time())
        return await answer(store)

    async with runtime:
        await store.put(PutSession(ROW)).committed()
        yield Scene(store, shared_parking(runtime, store, ME, ask), asked)


async def silence(_store: SharedMemory) -> bool:
    """Never answer."""
    await trio.sleep_forever()


async def obedience(store: SharedMemory) -> bool:
    """Let go of the session at once."""
    store.at = SessionPlace(None, 1, 100)
    return True


async def business(_store: SharedMemory) -> bool:
    """Answer that the session is busy."""
    await trio.sleep(1)
    return False


def awake(beats: int = 7) -> SessionPlace:
    """Return the place of a session that the other node has awake."""
    return SessionPlace(OTHER, 1, beats=beats)


async def test_a_parked_session_is_taken_with_what_is_left_of_its_window(
    autojump_clock: MockClock,
) -> None:
    """Nobody is asked, and the window goes on where it was."""
    async with scene(SessionPlace(None, 1, 40), silence) as here:
        taken, seconds = await here.take()
        assert taken is not None
        assert taken.window_ends == trio.current_time() + 40
        assert seconds == 0
        assert not here.asked


async def test_a_window_that_is_over_is_over(autojump_clock: MockClock) -> None:
    """A session past its window is not taken, although the store still has it."""
    async with scene(SessionPlace(None, 1, 0), silence) as here:
        assert await here.take() == (None, 0)
        assert here.store.at.node is None


async def test_a_node_that_lets_go(autojump_clock: MockClock) -> None:
    """A session that another node has awake is taken as soon as it has let go."""
    async with scene(awake(), obedience) as here:
        taken, seconds = await here.take()
        assert taken is not None
        assert seconds <= 2 * LOOK_SECONDS
        assert not here.store.stolen


async def test_a_node_that_parks_the_session_by_itself(autojump_clock: MockClock) -> None:
    """A command that finds nobody is not waited for."""
    async with scene(awake(), silence) as here, trio.open_nursery() as nursery:
        nursery.start_soon(here.take)
        await trio.sleep(1)
        here.store.at = SessionPlace(None, 1, 100)
        await trio.sleep(2 * LOOK_SECONDS)
        assert here.store.at.node == ME
        assert not here.store.stolen


async def test_a_silent_node(autojump_clock: MockClock) -> None:
    """A session is stolen after `release_seconds`, and then has a whole window."""
    async with scene(awake(), silence) as here:
        taken, seconds = await here.take()
        assert taken is not None
        assert taken.window_ends is None
        assert seconds == 3
        assert here.store.stolen == 1


async def test_a_silent_node_is_asked_once(autojump_clock: MockClock) -> None:
    """A node that was silent is asked again only after another sign of life."""
    async with scene(awake(), silence) as here:
        await here.take()
        here.store.at = awake()
        assert (await here.take())[1] == 0
        here.store.at = awake(beats=8)
        assert (await here.take())[1] == 3
        assert len(here.asked) == 2
        assert here.store.stolen == 3


async def test_a_node_that_is_not_connected_is_not_asked(autojump_clock: MockClock) -> None:
    """The process of such a node has most likely ended: its sessions are stolen at once."""
    async with scene(awake(), silence) as here:
        here.store.other_runs = False
        taken, seconds = await here.take()
        assert taken is not None
        assert (seconds, here.asked, here.store.stolen) == (0, [], 1)
        here.store.other_runs, here.store.at = True, awake(beats=8)
        assert (await here.take())[1] == 3


async def test_a_node_that_stands_still_with_the_session_locked(autojump_clock: MockClock) -> None:
    """What a write like any other does not get is taken with force."""
    async with scene(awake(), silence) as here:
        here.store.locked = True
        taken, seconds = await here.take()
        assert taken is not None
        assert (seconds, here.store.stolen) == (3, 1)


async def test_a_busy_node_has_more_time(autojump_clock: MockClock) -> None:
    """A node that answers that the session is busy is alive, and has some seconds more."""
    async with scene(awake(), business) as here:
        _, seconds = await here.take()
        assert seconds == 1 + BUSY_SECONDS
        assert here.store.stolen == 1


async def test_a_node_that_has_nothing_to_let_go_of(autojump_clock: MockClock) -> None:
    """A node that answers, and does not have the session awake, has it stolen at once."""

    async def emptiness(_store: SharedMemory) -> bool:
        return True

    async with scene(awake(), emptiness) as here:
        taken, seconds = await here.take()
        assert taken is not None
        assert seconds <= 2 * LOOK_SECONDS
        assert here.store.stolen == 1


async def test_a_session_that_was_left_at_this_node(autojump_clock: MockClock) -> None:
    """What a theft that was given up has brought here is taken as it is."""
    async with scene(SessionPlace(ME, 1), silence) as here:
        taken, seconds = await here.take()
        assert taken is not None
        assert seconds == 0
        assert not here.asked


@pytest.mark.parametrize("place", [SessionPlace(None, 1, 50), awake()])
async def test_a_resume_that_is_refused_disturbs_nobody(
    place: SessionPlace, autojump_clock: MockClock
) -> None:
    """The check comes first: a parked session stays parked, and no node is asked."""
    async with scene(place, obedience) as here:
        with pytest.raises(ResumeWindowExpired):
            await here.parking.take("sess_1", refuse)
        assert here.store.at == place
        assert not here.asked


async def test_the_next_take_goes_on_where_one_was_cancelled(
    autojump_clock: MockClock,
) -> None:
    """A take that is cancelled leaves the session parked or at this node; the next one has it."""
    async with scene(SessionPlace(None, 1, 50), silence) as here:
        outcomes = set[bool]()
        for checkpoints in range(12):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(here.take)
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                done = not nursery.child_tasks
                nursery.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            assert here.store.at.node in {ME, None}
            assert (await here.take())[0] is not None
            assert not here.store.stolen
            outcomes.add(done)
            here.store.at = SessionPlace(None, 1, 50)
        assert outcomes == {True, False}
