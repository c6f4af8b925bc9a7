"""The reading half of the store, on a connection and in a thread of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from os import PathLike
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Concatenate, ParamSpec, TypeVar

import attrs

from arcp_trio.rounds import Rounds
from arcp_trio.store.call_thread import CallThread
from arcp_trio.store.errors import OtherVersion, StoreError
from arcp_trio.store.interface import Said
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.looking import SnapshotReads
from arcp_trio.store.memos import Memo
from arcp_trio.store.records import JobRow, KeyRow, Owed, Recovered, SessionRow
from arcp_trio.store.snapshot import Snapshot
from arcp_trio.store.sqlite import _durable, _file, _listing, _rows, _schema
from arcp_trio.store.sqlite._snapshot import SqliteSnapshot

_P = ParamSpec("_P")
_T = TypeVar("_T")


@attrs.define(eq=False)
class ReadThread:
    """What all readers of one store share."""

    path: Path
    """The file."""
    connection: sqlite3.Connection | None = None
    """What is read from; None while the store is not open."""
    rounds: Rounds = attrs.field(factory=Rounds)
    calls: CallThread = attrs.field(factory=lambda: CallThread("store reader", standstill=False))


class SqliteReader(SnapshotReads):
    """The reads of a store; each raises `StoreError` if the file cannot be read."""

    _principal = ""
    _urgent = False

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._thread = ReadThread(path)

    @property
    def path(self) -> Path:
        """The file."""
        return self._thread.path

    def for_principal(self, principal: str, *, urgent: bool = False) -> SqliteReader:
        """Return the same reads, done when it is the principal's turn."""
        return _PrincipalReader(self._thread, principal, urgent=urgent)

    async def _read(
        self,
        act: Callable[Concatenate[sqlite3.Connection, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Call `act` in a thread, within one transaction: it sees one state of the file."""
        thread = self._thread

        def in_thread() -> _T:
            db = thread.connection
            if db is None:
                raise StoreError(f"{self.path} is not open")
            with _file.store_errors(self.path), _file.transaction(db, "DEFERRED"):
                return act(db, *args, **kwargs)

        async with thread.rounds.turn(self._principal, urgent=self._urgent):
            return await thread.calls.run(in_thread)

    async def recover(self) -> Recovered:
        return await self._read(_rows.recover)

    async def stored_bytes(self) -> Mapping[str, int]:
        return await self._read(_rows.stored_bytes)

    async def session(self, session_id: str) -> SessionRow | None:
        return await self._read(_rows.session, session_id)

    async def session_of_token(self, digest: bytes) -> str | None:
        return await self._read(_rows.session_of_token, digest)

    async def owner(self, job_id: str) -> str | None:
        return await self._read(_rows.owner, job_id)

    async def job(self, job_id: str) -> JobRow | None:
        return await self._read(_rows.job, job_id)

    async def jobs(self, query: JobQuery) -> Sequence[JobRow]:
        return await self._read(_listing.jobs, query)

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        return await self._read(_rows.key, principal, key, now)

    async def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        cursors = dict(cursors)  # the caller's may change while the thread reads
        return await self._read(lambda db: SqliteSnapshot(db).owed(cursors, entries, size))

    async def memos(self, job_id: str) -> Sequence[Memo]:
        return await self._read(_durable.memos, job_id)

    async def memo(self, job_id: str, key: str) -> Memo | None:
        return await self._read(_durable.memo, job_id, key)

    async def said(self, job_id: str, index: int) -> Said:
        return await self._read(_durable.said, job_id, index)

    async def _see(self, act: Callable[[Snapshot], _T]) -> _T:
        return await self._read(lambda db: act(SqliteSnapshot(db)))


class _PrincipalReader(SqliteReader):
    """The reads of one principal, on the thread of all."""

    def __init__(self, thread: ReadThread, principal: str = "", *, urgent: bool = False) -> None:
        self._thread = thread
        self._principal = principal
        self._urgent = urgent


@asynccontextmanager
async def open_read_only(path: str | PathLike[str]) -> AsyncGenerator[SqliteReader]:
    """Open a store that no runtime has open, only to read it; the file may be read-only.

    Raises:
        StoreError: the file does not exist, is in use, is not a store, or is of another version.
    """
    thread = ReadThread(Path(path))
    with ExitStack() as opened, thread.calls:
        thread.connection = await thread.calls.run(partial(_connect, thread.path, opened))
        yield _PrincipalReader(thread)


def _connect(path: Path, opened: ExitStack) -> sqlite3.Connection:
    try:
        if not path.is_file():
            raise StoreError(f"there is no store at {path}")
        opened.enter_context(_file.held(path, shared=True))
        seen, query = _untouched(path, opened)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    with _file.store_errors(path):
        db = opened.enter_context(closing(_file.connect(seen, query)))
        _file.identify(db, path)
        if _schema.version_of(db) != len(_schema.MIGRATIONS):
            raise OtherVersion(f"{path} is of an earlier version: start a runtime on it once")
    return db


def _untouched(path: Path, opened: ExitStack) -> tuple[Path, str]:
    """Return what to open, and how, so that the file and the files beside it do not change.

    A write-ahead log that is not empty was left by a runtime that was killed, and belongs to the
    store.
    """
    log, index = (Path(f"{path}-{part}") for part in ("wal", "shm"))
    if not log.exists() or not log.stat().st_size:
        return path, "immutable=1"
    if index.exists():
        return path, "mode=ro&readonly_shm=1"
    # SQLite reads the log by an index and would have to make one beside the file: the store was
    # copied without it.
    folder = Path(opened.enter_context(TemporaryDirectory(prefix="arcp-")))
    for each in (path, log):
        copyfile(each, folder / each.name)
    return folder / path.name, "mode=ro"
