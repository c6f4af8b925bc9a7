"""The reading half of the store, on a connection and a thread of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from os import PathLike
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Concatenate, ParamSpec, TypeVar

import trio

from arcp_trio.store.errors import OtherVersion, StoreError
from arcp_trio.store.interface import Owed, Replay
from arcp_trio.store.records import Frame, JobQuery, JobRow, KeyRow, Recovered, SessionRow
from arcp_trio.store.replaying import ReplayPlace
from arcp_trio.store.sqlite import file, schema
from arcp_trio.store.sqlite.looking import Coverage, NumberSearch
from arcp_trio.store.sqlite.reading import Snapshot

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SqliteReader:
    """Every read that a store has; raises StoreError if the file cannot be read."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.connection: sqlite3.Connection | None = None
        """What is read from, while the store is open."""
        self._reads = trio.CapacityLimiter(1)

    async def read(
        self,
        what: Callable[Concatenate[Snapshot, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Have something read, from one state of the file."""

        def in_thread() -> _T:
            db = self.connection
            if db is None:
                raise StoreError(f"{self.path} is not open")
            with file.store_errors(self.path), file.transaction(db, "DEFERRED"):
                return what(Snapshot(db), *args, **kwargs)

        return await trio.to_thread.run_sync(in_thread, limiter=self._reads)

    async def recover(self) -> Recovered:
        return await self.read(Snapshot.recover)

    async def session(self, session_id: str) -> SessionRow | None:
        return await self.read(Snapshot.session, session_id)

    async def session_of_token(self, token: bytes) -> str | None:
        return await self.read(Snapshot.session_of_token, token)

    async def job(self, job_id: str) -> JobRow | None:
        return await self.read(Snapshot.job, job_id)

    async def jobs(self, query: JobQuery) -> Sequence[JobRow]:
        return await self.read(Snapshot.jobs, query)

    async def index_after(self, job_id: str, seq: int) -> int | None:
        search = NumberSearch(job_id, seq)
        while await self.read(search.look):
            pass
        return None if search.found is None else max(search.found, search.base)

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        return await self.read(Snapshot.key, principal, key, now)

    async def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        return await self.read(Snapshot.owed, dict(cursors), entries, size)

    async def covers(self, session_id: str, after: int) -> bool:
        cover = Coverage(session_id, after)
        while await self.read(cover.look):
            pass
        return cover.complete

    def replay(self, session_id: str, after: int, top: int, log_rows: int) -> Replay:
        return _SqliteReplay(self, ReplayPlace(session_id, after, top, log_rows))


class _SqliteReplay:
    def __init__(self, reader: SqliteReader, place: ReplayPlace) -> None:
        self._reader = reader
        self._place = place

    async def next(self, frames: int, size: int) -> Sequence[Frame]:
        return await self._reader.read(lambda log: self._place.read(log, frames, size))


@asynccontextmanager
async def open_read_only(path: str | PathLike[str]) -> AsyncGenerator[SqliteReader]:
    """A store that no runtime has open, to look at. Nothing is changed; the file may be read-only.

    Raises:
        StoreError: it is not there, in use, not a store, or of another version.
    """
    reader = SqliteReader(Path(path))
    with ExitStack() as opened:
        reader.connection = await trio.to_thread.run_sync(_look_at, reader.path, opened)
        yield reader


def _look_at(path: Path, opened: ExitStack) -> sqlite3.Connection:
    try:
        if not path.is_file():
            raise StoreError(f"there is no store at {path}")
        opened.enter_context(file.held(path, shared=True))
        seen, query = _untouched(path, opened)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    with file.store_errors(path):
        db = opened.enter_context(closing(file.connect(seen, query)))
        file.identify(db, path)
        if schema.version_of(db) != len(schema.MIGRATIONS):
            raise OtherVersion(f"{path} is of an earlier version: start a runtime on it once")
    return db


def _untouched(path: Path, opened: ExitStack) -> tuple[Path, str]:
    """What to open, and how, so that the file and what is beside it stay as they are.

    A write-ahead log with something in it was left by a runtime that was killed, and belongs to the
    store.
    """
    log, index = (Path(f"{path}-{part}") for part in ("wal", "shm"))
    if not log.exists() or not log.stat().st_size:
        return path, "immutable=1"
    if index.exists():
        return path, "mode=ro&readonly_shm=1"
    # The log is read by an index, which whoever copied the store has left out: SQLite would have to
    # make it there.
    folder = Path(opened.enter_context(TemporaryDirectory(prefix="arcp-")))
    for each in (path, log):
        copyfile(each, folder / each.name)
    return folder / path.name, "mode=ro"
