"""The store in a SQLite file: its writer and its housekeeping."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from os import PathLike
from pathlib import Path
from typing import Final, Literal, TypeVar

import trio

from arcp_trio.store.call_thread import CallThread
from arcp_trio.store.errors import UnwritableStore
from arcp_trio.store.housekeeping import Housekeeping
from arcp_trio.store.interface import Store
from arcp_trio.store.sqlite import _file
from arcp_trio.store.sqlite._cleaning import clean_piece, shrink_piece
from arcp_trio.store.sqlite._writing import GroupWriter
from arcp_trio.store.sqlite.reader import SqliteReader
from arcp_trio.store.writes import Write

ROUND_PIECES: Final = 32
"""Pieces of cleaning in a round, before the next checkpoint."""

PACE_SECONDS: Final = 0.002
"""See `WriteQueue`. A transaction and its sync cost the processor about 0.13 ms, an event 0.06."""

WAL_PAGES: Final = 256
"""A write-ahead log of more pages is made to start over."""

CLOSE_SECONDS: Final = 10.0
"""How long closing the file may take."""

_T = TypeVar("_T")


class SqliteStore(SqliteReader, Store):
    """Keeps everything in one file, for one runtime at a time.

    The file is opened when the runtime is entered, and made if it does not exist. What was stored
    survives the end of the process and, by default, a loss of power.
    """

    name = "SQLite"

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        synchronous: Literal["FULL", "NORMAL", "OFF"] = "FULL",
    ) -> None:
        """Make a store in the file at `path`.

        Args:
            path: the file; its folder is made, too.
            synchronous: the setting of SQLite. A loss of power loses nothing under `FULL`, perhaps
                the last moments under `NORMAL`, and perhaps the whole file under `OFF`. A killed
                process loses nothing under any of them.
        """
        super().__init__(Path(path))
        self.pace_seconds = PACE_SECONDS
        self.durable = synchronous == "FULL"
        self._synchronous = synchronous
        self._resources = ExitStack()
        self._writer: sqlite3.Connection
        self._checkpointer: sqlite3.Connection
        self._writes = CallThread("store writer")
        self._checkpoints = trio.CapacityLimiter(1)
        self._committed = 0
        """Number of the last group that is known to be stored."""
        self._in_doubt = False
        """The last try to store a group seemed to fail, and may not have."""
        self._housekeeping = Housekeeping(self._keep_house)

    @property
    def outlasts_process(self) -> bool:
        """Whether what is stored survives the end of the process: under each setting."""
        return True

    def files(self) -> Sequence[str]:
        """Return the paths of the file, its write-ahead log, and its lock."""
        return [f"{self.path}{part}" for part in _file.PARTS]

    # -- opening and closing

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        with self._writes, self._thread.calls:
            await self._writes.run(self._open)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._housekeeping.run, name="store housekeeping")
                    yield
                    nursery.cancel_scope.cancel(reason="the store is being closed")
            finally:
                with trio.move_on_after(CLOSE_SECONDS, shield=True):
                    async with self._thread.rounds.turn(""):
                        await self._writes.run(self._close)

    def _open(self) -> None:
        path = self.path
        with ExitStack() as opened:
            _file.make(path)
            opened.enter_context(_file.held(path))
            try:
                writer, checkpointer, reader = [
                    opened.enter_context(closing(_file.connect(path, f"mode={mode}")))
                    for mode in ("rw", "rw", "ro")
                ]
                _file.prepare(writer, path, self._synchronous)
                checkpointer.execute(f"PRAGMA synchronous = {self._synchronous}")
                self._committed = _committed(writer)
            except sqlite3.OperationalError as error:
                raise UnwritableStore(f"cannot use {path}: {error}") from error
            self._writer, self._checkpointer, self._thread.connection = writer, checkpointer, reader
            self._resources = opened.pop_all()
        self._housekeeping.wake()

    def _close(self) -> None:
        self._thread.connection = None
        with self._resources, suppress(sqlite3.Error):  # pages that are not copied stay in the log
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- writing

    async def _commit(self, writes: Sequence[Write]) -> None:
        await self._write(lambda db: self._store_group(db, writes))
        self._housekeeping.wake()

    async def _write(self, act: Callable[[sqlite3.Connection], _T]) -> _T:
        """Call `act` with the one connection that writes; a cancel waits until `act` is done."""

        def in_thread() -> _T:
            with _file.store_errors(self.path):
                return act(self._writer)

        return await self._writes.run(in_thread)

    def _store_group(self, db: sqlite3.Connection, writes: Sequence[Write]) -> None:
        number = self._committed + 1
        doubtful, self._in_doubt = self._in_doubt, True
        with _file.transaction(db, "IMMEDIATE"):
            if not (doubtful and _committed(db) == number):
                changes = db.total_changes
                ordinal = GroupWriter(db).apply(writes)
                if db.total_changes == changes:
                    number -= 1  # nothing to commit: an idle runtime does not touch the disk
                else:
                    db.execute(
                        "UPDATE state SET committed = ?, ordinal = max(ordinal, ?)",
                        (number, ordinal),
                    )
            self._writes.let_loop_go_on()
        self._committed, self._in_doubt = number, False

    # -- housekeeping

    async def _keep_house(self) -> bool:
        """Make a round; return whether there is more to delete."""
        more = await self._clean()
        await self._checkpoint()
        return more

    async def _clean(self) -> bool:
        """Delete what was given up, between the commits; return whether there is more."""
        for _ in range(ROUND_PIECES):
            if not (await self._write(clean_piece) or await self._write(shrink_piece)):
                return False
        return True

    async def _checkpoint(self) -> None:
        """Copy the write-ahead log into the file, beside the commits, so that they need not do so.

        SQLite starts the log over once all of it has been copied, which does not happen while
        commits go on. When the log is long, commits therefore wait while its rest is copied: the
        pages that came during the copy before.
        """
        if await self._copy_log() > WAL_PAGES:
            await self._copy_log()
            async with self._thread.rounds.turn(""):  # pages that a reader needs are not copied
                await self._write(_copy_log)

    async def _copy_log(self) -> int:
        def in_thread() -> int:
            with _file.store_errors(self.path):
                return _copy_log(self._checkpointer)

        return await trio.to_thread.run_sync(in_thread, limiter=self._checkpoints)


def _committed(db: sqlite3.Connection) -> int:
    """Return the number of the last group that is stored."""
    (number,) = db.execute("SELECT committed FROM state").fetchone()
    return int(number)


def _copy_log(db: sqlite3.Connection) -> int:
    """Copy as many pages as is possible without waiting; return how many the log has."""
    _, pages, _ = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages)
