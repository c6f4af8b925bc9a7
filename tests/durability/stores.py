"""Stores that lose their process or their disk when a test wants it."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar, TypeVarTuple

import attrs
import trio

from arcp_trio.store.errors import StoreError
from arcp_trio.store.interface import Replay
from arcp_trio.store.memory import MemoryStore
from arcp_trio.store.memory._tables import Tables
from arcp_trio.store.records import NumberedTail
from arcp_trio.store.writes import Write

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

READS = ("recover", "session", "session_of_token", "job", "key", "owed", "covers")


S = TypeVar("S", bound=MemoryStore)

TABLES = [table.name for table in attrs.fields(Tables)]


def crash(store: MemoryStore) -> MemoryStore:
    """Return a store with what is committed, as a process finds it after this one was killed."""
    return copy_into(MemoryStore(), store)


def copy_into(empty: S, store: MemoryStore) -> S:
    """Copy what is committed in `store` into the empty one, and return that."""
    for name in TABLES:
        setattr(empty._tables, name, copy.deepcopy(getattr(store._tables, name)))
    return empty


class WatchedStore(MemoryStore):
    """A store that calls its test before each commit."""

    def __init__(self, before_commit: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._before_commit = before_commit

    async def _commit(self, writes: Sequence[Write]) -> None:
        await self._before_commit()
        await super()._commit(writes)


class FaultyStore(MemoryStore):
    """A store that fails from its commit or read of this number on, for `seconds`, at least once.

    With `applied`, the commits that fail are stored all the same, as if the disk's answer were
    lost; the next try finds them stored.
    """

    def __init__(
        self, *, commit: int = 0, read: int = 0, seconds: float = 0, applied: bool = False
    ) -> None:
        super().__init__()
        self._first = {"commit": commit, "read": read}
        self._seconds = seconds
        self._applied = applied
        self._calls = {"commit": 0, "read": 0}
        self._broken: dict[str, float] = {}
        """Until when commits and reads fail."""
        self._stored: Sequence[Write] | None = None
        """The writes of a commit that failed, and stored them all the same."""
        self.failed: list[str] = []
        """The commits and reads that failed, in order."""
        for name in READS:
            setattr(self, name, partial(self._read, name, getattr(self, name)))

    def _fails(self, kind: str, what: str) -> bool:
        self._calls[kind] += 1
        now = trio.current_time()
        if self._calls[kind] == self._first[kind]:
            self._broken[kind] = now + self._seconds
        elif now >= self._broken.get(kind, 0):
            return False
        self.failed.append(what)
        return True

    async def _commit(self, writes: Sequence[Write]) -> None:
        fails = self._fails("commit", f"commit of {[type(write).__name__ for write in writes]}")
        if (not fails or self._applied) and writes is not self._stored:
            await super()._commit(writes)
            self._stored = writes
        if fails:
            await trio.lowlevel.checkpoint()
            raise StoreError("no space left on device")

    async def _read(self, what: str, read: Callable[[*_Ts], Awaitable[_T]], *about: *_Ts) -> _T:
        found = await read(*about)
        if self._fails("read", what):
            raise StoreError(f"{what}: input/output error")
        return found

    def replay(self, session_id: str, after: int, top: int, rows: int) -> Replay:
        """Return a replay whose pieces are reads that may fail."""
        return _FaultyReplay(self, super().replay(session_id, after, top, rows))


class _FaultyReplay:
    def __init__(self, store: FaultyStore, replay: Replay) -> None:
        self._store = store
        self._replay = replay

    async def next(self, frames: int, size: int) -> Sequence[NumberedTail]:
        return await self._store._read("replay", self._replay.next, frames, size)
