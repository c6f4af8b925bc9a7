"""The file: locks, permissions, connections, and checks that it is a store."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from arcp_trio.store.errors import (
    CorruptStore,
    DiskFull,
    ForeignFile,
    OtherVersion,
    StoreError,
    StoreInUse,
    UnwritableStore,
)
from arcp_trio.store.sqlite import _schema

log = logging.getLogger(__name__)

PARTS: Final = ("", "-wal", "-shm", ".lock")
"""What the names of a store's files have after the path of the first one."""

BUSY_SECONDS: Final = 5.0
"""How long a connection waits for another connection of this process, such as a checkpoint that
starts the write-ahead log over. The lock keeps other processes out."""

CHECK_WHOLE_BYTES: Final = 256 * 1024 * 1024
"""The largest file that is checked whole on opening: to read all of a larger one would delay the
start, so that only its small tables are checked. Damage elsewhere is found when the damaged part
is read."""

MAX_WAL_PAGES: Final = 8_192
"""A commit that leaves a longer write-ahead log copies all of it into the file."""


# -- before the file is opened


def make(path: Path) -> None:
    """Make the folder and the file unless they exist; no other user may read the files."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
        # SQLite gives the files beside it the mode of this file.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for part in PARTS:
            _close_to_others(Path(f"{path}{part}"))
    except OSError as error:
        raise UnwritableStore(f"cannot write to {path}: {error.strerror}") from error


def _close_to_others(path: Path) -> None:
    if not path.is_file():
        return
    facts = path.stat()
    if facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) & 0o077:
        path.chmod(0o600)
        log.warning("closed to other users", extra={"path": str(path)})


@contextmanager
def held(path: Path, *, shared: bool = False) -> Generator[None]:
    """Hold the lock of the store: readers share it (`shared`), a runtime has it alone."""
    flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
    try:
        lock = os.open(f"{path}.lock", flags | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        # No runtime has opened the store here, so no runtime has to be kept out.
        yield
        return
    except OSError as error:
        raise UnwritableStore(f"cannot open {path}.lock: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            # Readers keep a runtime out; only a runtime keeps readers out.
            by = "a program that reads it" if not shared and _is_shared(lock) else "another runtime"
            raise StoreInUse(f"{path} is in use by {by}") from error
        yield
    finally:
        os.close(lock)


def _is_shared(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# -- connections


def connect(path: Path, query: str) -> sqlite3.Connection:
    """Open a connection whose transactions are begun and ended by hand, in any thread."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=128,
    )


@contextmanager
def transaction(db: sqlite3.Connection, kind: str) -> Generator[None]:
    """Commit all that the block does or, if it raises, nothing."""
    if db.in_transaction:
        db.execute("ROLLBACK")  # the transaction before failed, and its rollback, too
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


_MISTAKES: Final = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InternalError,
    sqlite3.NotSupportedError,
    sqlite3.ProgrammingError,
)
"""Errors of this program; all other errors of SQLite are about the disk or the file."""


@contextmanager
def store_errors(path: Path) -> Generator[None]:
    """Raise errors of the disk or the file as `StoreError`."""
    try:
        yield
    except _MISTAKES:
        raise
    except sqlite3.DatabaseError as error:
        full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
        raise (DiskFull if full else StoreError)(f"{path}: {error}") from error


# -- when the file is opened


@contextmanager
def _diagnosed(path: Path) -> Generator[None]:
    """Raise `ForeignFile` for a file of another kind, and `CorruptStore` for a damaged store."""
    try:
        yield
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise ForeignFile(f"{path} is not a store of this program: {error}") from error
        raise CorruptStore(f"{path} is damaged: {error}") from error


def identify(db: sqlite3.Connection, path: Path) -> None:
    """Check, without a change, that the file is empty or a store of this or an earlier version.

    Raises:
        ForeignFile: the file is not a store.
        CorruptStore: the file cannot be read.
        OtherVersion: the file is a store of a later version.
    """
    with _diagnosed(path):
        (application_id,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id != _schema.APPLICATION_ID and (application_id or tables):
        raise ForeignFile(f"{path} is not a store of this program, but another database")
    version, newest = _schema.version_of(db), len(_schema.MIGRATIONS)
    if version > newest:
        raise OtherVersion(
            f"{path} was written by a later version of this program"
            f" (its format is {version}, the newest known here is {newest})"
        )


def check(db: sqlite3.Connection, path: Path) -> None:
    """Look for damage, as far as that is quick.

    Raises:
        CorruptStore: the file is damaged.
    """
    whole = path.stat().st_size <= CHECK_WHOLE_BYTES
    with _diagnosed(path):
        for table in [1] if whole else _schema.SMALL_TABLES:  # 1: all tables, up to one problem
            (found,) = db.execute(f"PRAGMA quick_check({table})").fetchone()
            if found != "ok":
                raise CorruptStore(f"{path} is damaged: {' '.join(found.split())}")


def prepare(db: sqlite3.Connection, path: Path, synchronous: str) -> None:
    """Make the file a store of this version, and `db` the connection of its writer."""
    identify(db, path)
    if _schema.version_of(db):
        check(db, path)
    else:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # possible only before there is a table
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UnwritableStore(f"{path} is on a file system that cannot share memory")
    db.execute(f"PRAGMA synchronous = {synchronous}")
    # Housekeeping copies the log beside the commits; where it cannot keep up, commits do.
    db.execute(f"PRAGMA wal_autocheckpoint = {MAX_WAL_PAGES}")
    with transaction(db, "IMMEDIATE"):
        _schema.migrate(db)
