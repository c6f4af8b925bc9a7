"""A SQLite whose statements fail when a test wants it, under the store's real connections."""

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

from arcp_trio.store.interface import Store
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.testing.background import background_tasks

_T = TypeVar("_T")


@attrs.frozen
class Statement:
    """One that is about to be executed."""

    sql: str
    reads: bool
    """On the connection that only reads."""


@attrs.define(eq=False, kw_only=True)
class Faults:
    """Fails the `first` statement of those that count, and all on that side for so many seconds.

    With `applied` they are executed all the same, as when the answer of a disk is lost.
    """

    clock: MockClock
    counts: Callable[[Statement], bool]
    first: int
    seconds: float = 0
    applied: bool = False
    armed: bool = False
    failed: str | None = None
    """What failed first."""
    _counted: int = 0
    _broken: dict[bool, float] = attrs.field(factory=dict[bool, float])
    """Until when, by whether it is the side that reads."""

    def fail(self, statement: Statement) -> bool:
        """Whether this statement is to fail."""
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
        """Have connections from here on be such as fail."""
        monkeypatch.setattr(
            sqlite3, "connect", partial(sqlite3.connect, factory=partial(_Faulty, self))
        )


class _Faulty(sqlite3.Connection):
    """Fails as a disk does: the statement has no effect, and the transaction goes on."""

    def __init__(self, faults: Faults, database: str, **options: object) -> None:
        super().__init__(database, **options)  # type: ignore[arg-type]
        self._faults = faults
        self._reads = "mode=ro" in database

    def execute(self, sql: str, *about: object) -> sqlite3.Cursor:
        """Execute a statement, or not."""
        return self._try(sql, partial(super().execute, sql, *about))  # type: ignore[arg-type]

    def executemany(self, sql: str, *about: object) -> sqlite3.Cursor:
        """Execute a statement many times, or not."""
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
    """Virtual time that stands still while the store's threads are at work."""
    assert isinstance(store, SqliteStore)
    limiters = store._writes, store._reads, store._checkpoints

    async def go_on() -> None:
        while True:
            await wait_all_tasks_blocked()
            busy = [limiter for limiter in limiters if limiter.borrowed_tokens]
            pause = trio.lowlevel.current_statistics().seconds_to_next_deadline
            for limiter in busy:
                async with limiter:  # behind the work that holds it
                    pass
            if not busy and pause < math.inf:
                clock.jump(max(0, pause))
            elif not busy:
                await trio.to_thread.run_sync(lambda: None)  # the file is being opened

    async with background_tasks() as nursery:
        nursery.start_soon(go_on, name="time")
        yield
