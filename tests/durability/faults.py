"""Connections of SQLite whose statements fail when a test wants it."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.interface import Store
from arcp_trio.store.sqlite import SqliteStore

_T = TypeVar("_T")


@attrs.frozen
class Statement:
    """A statement that is about to be executed."""

    sql: str
    reads: bool
    """Whether it is on the connection that only reads."""


@attrs.define(eq=False, kw_only=True)
class Faults:
    """Fails the `first` of the statements that count, then all on its side for `seconds`.

    With `applied`, failing statements are executed all the same, as if a disk's answer were lost.
    """

    clock: MockClock
    counts: Callable[[Statement], bool]
    first: int
    seconds: float = 0
    applied: bool = False
    armed: bool = False
    failed: str | None = None
    """The statement that failed first."""
    _counted: int = 0
    _broken: dict[bool, float] = attrs.field(factory=dict[bool, float])
    """Until when the side that reads (True), or the one that writes, fails."""

    def fail(self, statement: Statement) -> bool:
        """Return whether this statement is to fail."""
        if not self.armed:
            return False
        now = self.clock.current_time()
        if self.counts(statement):
            self._counted += 1
            if self._counted == self.first:
                self._broken[statement.reads] = now + self.seconds
                self.failed = statement.sql
                return True
        return now < self._broken.get(statement.reads, -math.inf)

    def connect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make connections that are opened from now on fail."""
        monkeypatch.setattr(
            sqlite3, "connect", partial(sqlite3.connect, factory=partial(_Faulty, self))
        )


class _Faulty(sqlite3.Connection):
    """A connection that fails as a disk does: the transaction of a failed statement goes on."""

    def __init__(self, faults: Faults, database: str, **options: object) -> None:
        super().__init__(database, **options)  # type: ignore[arg-type]
        self._faults = faults
        self._reads = "mode=ro" in database

    def execute(self, sql: str, *about: object) -> sqlite3.Cursor:
        """Execute a statement, unless it is to fail."""
        return self._try(sql, partial(super().execute, sql, *about))  # type: ignore[arg-type]

    def executemany(self, sql: str, *about: object) -> sqlite3.Cursor:
        """Execute a statement many times, unless it is to fail."""
        return self._try(sql, partial(super().executemany, sql, *about))  # type: ignore[arg-type]

    def _try(self, sql: str, execute: Callable[[], _T]) -> _T:
        fails, error = self._faults.fail(Statement(sql, self._reads)), "disk I/O error"
        if fails and not self._faults.applied:
            raise sqlite3.OperationalError(error)
        done = execute()
        if fails:
            raise sqlite3.OperationalError(error)
        return done


@asynccontextmanager
async def passing_time(clock: MockClock, store: Store) -> AsyncGenerator[None, None]:
    """Let virtual time pass, but not while the store's threads are at work."""
    assert isinstance(store, SqliteStore)
    threads, checkpoints = (store._writes, store._thread.calls), store._checkpoints

    async def go_on() -> None:
        while True:
            await wait_all_tasks_blocked()
            pause = trio.lowlevel.current_statistics().seconds_to_next_deadline
            busy = [thread for thread in threads if thread.waiting]
            if checkpoints.borrowed_tokens:
                async with checkpoints:  # after the copying that holds it
                    pass
            elif busy:
                await busy[0].run(int)  # after what others wait for
            elif pause < math.inf:
                clock.jump(max(0, pause))
            else:
                await trio.to_thread.run_sync(lambda: None)  # the file is being opened

    async with tasks_beside() as nursery:
        nursery.start_soon(go_on, name="time")
        yield
