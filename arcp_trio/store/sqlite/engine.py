"""The store in a SQLite file: what it has said is stored survives the process and the power."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from os import PathLike
from pathlib import Path
from typing import Literal, TypeVar

import trio

from arcp_trio.store.errors import StoreError, UnwritableStore
from arcp_trio.store.interface import Store
from arcp_trio.store.sqlite import file
from arcp_trio.store.sqlite.cleaning import clean_piece, shrink_piece
from arcp_trio.store.sqlite.reader import SqliteReader
from arcp_trio.store.sqlite.writing import GroupWriter
from arcp_trio.store.writes import Write

log = logging.getLogger(__name__)

HOUSEKEEPING_SECONDS = 0.1
"""Pause between rounds of housekeeping, while there is something to do."""

ROUND_PIECES = 32
"""Pieces of cleaning in a round, before the next checkpoint."""

FAILED_HOUSEKEEPING_SECONDS = 2.0

WAL_PAGES = 256
"""A write-ahead log of more pages is made to start over."""

CLOSE_SECONDS = 10.0

_T = TypeVar("_T")


class SqliteStore(SqliteReader, Store):
    """Keeps everything in one file, for one runtime at a time.

    The file is opened when the runtime is entered, and made if it is not there.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL",
    ) -> None:
        """A store in the file at `path`.

        Args:
            path: the file; its folder is made too.
            synchronous: SQLite's. `FULL` loses nothing with the power, `NORMAL` may lose the last
                moments, `OFF` the whole file. A killed process loses nothing under any.
        """
        super().__init__(Path(path))
        self.durable = synchronous == "FULL"
        self._synchronous = synchronous
        self._resources = ExitStack()
        self._writer: sqlite3.Connection
        self._checkpointer: sqlite3.Connection
        self._writes = trio.CapacityLimiter(1)
        self._checkpoints = trio.CapacityLimiter(1)
        self._committed = 0
        """The number of the last group that is known to be stored."""
        self._untidy = trio.Event()
        """There may be work for housekeeping."""

    # -- its life

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        await trio.to_thread.run_sync(self._open)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_house, name="store housekeeping")
                yield
                nursery.cancel_scope.cancel(reason="the store is being closed")
        finally:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                async with self._reads:
                    await trio.to_thread.run_sync(self._close, limiter=self._writes)

    def _open(self) -> None:
        path = self.path
        with ExitStack() as opened:
            file.make(path)
            opened.enter_context(file.held(path))
            try:
                writer, checkpointer, reader = [
                    opened.enter_context(closing(file.connect(path, f"mode={mode}")))
                    for mode in ("rw", "rw", "ro")
                ]
                file.prepare(writer, path, self._synchronous)
                checkpointer.execute(f"PRAGMA synchronous = {self._synchronous}")
                (self._committed,) = writer.execute("SELECT committed FROM state").fetchone()
            except sqlite3.OperationalError as error:
                raise UnwritableStore(f"cannot use {path}: {error}") from error
            self._writer, self._checkpointer, self.connection = writer, checkpointer, reader
            self._resources = opened.pop_all()
        self._untidy.set()

    def _close(self) -> None:
        self.connection = None
        with self._resources, suppress(sqlite3.Error):  # what is not copied back stays in the log
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- writing

    async def _commit(self, writes: Sequence[Write]) -> None:
        await self._write(lambda db: self._store(db, writes))
        self._untidy.set()

    async def _write(self, what: Callable[[sqlite3.Connection], _T]) -> _T:
        """Use the one connection that writes; once begun it is not given up half-way."""

        def in_thread() -> _T:
            with file.store_errors(self.path):
                return what(self._writer)

        return await trio.to_thread.run_sync(in_thread, limiter=self._writes)

    def _store(self, db: sqlite3.Connection, writes: Sequence[Write]) -> None:
        number = self._committed + 1
        with file.transaction(db, "IMMEDIATE"):
            (stored,) = db.execute("SELECT committed FROM state").fetchone()
            if stored != number:  # else the try before, which seemed to fail, has stored them
                changes = db.total_changes
                ordinal = GroupWriter(db).apply(writes)
                if db.total_changes == changes:
                    return  # an idle runtime need not touch the disk
                db.execute(
                    "UPDATE state SET committed = ?, ordinal = max(ordinal, ?)", (number, ordinal)
                )
        self._committed = number

    # -- housekeeping

    async def _keep_house(self) -> None:
        failing = False
        while True:
            await self._untidy.wait()
            self._untidy = trio.Event()
            await trio.sleep(HOUSEKEEPING_SECONDS)
            try:
                if await self._clean():
                    self._untidy.set()
                await self._checkpoint()
                failing = False
            except StoreError as error:
                if not failing:
                    log.warning("store cannot be cleaned up for now", extra={"error": str(error)})
                failing = True
            except Exception:  # a fault of ours in here is not to end the runtime
                log.exception("housekeeping failed, and goes on")
                failing = True
            if failing:
                self._untidy.set()
                await trio.sleep(FAILED_HOUSEKEEPING_SECONDS)

    async def _clean(self) -> bool:
        """Do away with what is gone, between the commits; True if there is more."""
        for _ in range(ROUND_PIECES):
            if not (await self._write(clean_piece) or await self._write(shrink_piece)):
                return False
        return True

    async def _checkpoint(self) -> None:
        """Copy the write-ahead log into the file, beside the commits, so that they need not.

        It starts over where it has been copied to its end, and while commits go on it never is. So
        when it is long they wait while the rest is copied: what came during the copying before.
        """
        if await self._copy_log() > WAL_PAGES:
            await self._copy_log()
            async with self._reads:  # what is being read is not copied over
                await self._write(_copy_log)

    async def _copy_log(self) -> int:
        def in_thread() -> int:
            with file.store_errors(self.path):
                return _copy_log(self._checkpointer)

        return await trio.to_thread.run_sync(in_thread, limiter=self._checkpoints)


def _copy_log(db: sqlite3.Connection) -> int:
    """Copy as much as nobody has to be waited for; the pages it has."""
    _, pages, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages)
