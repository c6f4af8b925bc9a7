"""The file: who may open it, whether it is a store, and connections to it."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from arcp_trio.store.errors import (
    CorruptStore,
    ForeignFile,
    OtherVersion,
    StoreError,
    StoreInUse,
    UnwritableStore,
)
from arcp_trio.store.sqlite import schema

log = logging.getLogger(__name__)

BUSY_SECONDS = 5.0
"""How long a connection waits for another of this process, as a checkpoint that starts the log
over; nobody else has the file."""

CHECK_WHOLE_BYTES = 256 * 1024 * 1024
"""A larger file has only its small tables checked on opening: reading all would hold up the start.
Damage elsewhere is met when it is read."""


MOST_WAL_PAGES = 8_192
"""A commit that leaves a longer write-ahead log copies all of it into the file."""


# -- before it is opened


def make(path: Path) -> None:
    """Make the folder and the file unless they are there; the files are for this user only."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True)
        # What SQLite puts beside it gets the file's mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        for part in ("", "-wal", "-shm", ".lock"):
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
    """Keep every other runtime, and readers unless they share it, out of the store."""
    flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
    try:
        lock = os.open(f"{path}.lock", flags | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        # Never opened for writing where this reader sees it: there is nobody to keep out.
        yield
        return
    except OSError as error:
        raise UnwritableStore(f"cannot open {path}.lock: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            # Readers keep a runtime out, and only a runtime keeps them out.
            by = "someone who reads it" if not shared and _is_shared(lock) else "another runtime"
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
    """A connection that begins and ends transactions as it is told, from any thread."""
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
    """All of the block or, if it raises, nothing."""
    if db.in_transaction:
        db.execute("ROLLBACK")  # the one before failed, and could not be undone at that moment
    db.execute(f"BEGIN {kind}")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            with suppress(sqlite3.Error):
                db.execute("ROLLBACK")
        raise


_MISTAKES = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InternalError,
    sqlite3.NotSupportedError,
    sqlite3.ProgrammingError,
)
"""The program's; anything else SQLite raises is the world's."""


@contextmanager
def store_errors(path: Path) -> Generator[None]:
    """Have what is wrong with disk or file raised as the store's own error."""
    try:
        yield
    except _MISTAKES:
        raise
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: {error}") from error


# -- when it is opened


@contextmanager
def _told_apart(path: Path) -> Generator[None]:
    """Tell a file of another kind from a damaged one, and both from one that cannot be read."""
    try:
        yield
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise ForeignFile(f"{path} is not a store of this program: {error}") from error
        raise CorruptStore(f"{path} is damaged: {error}") from error


def identify(db: sqlite3.Connection, path: Path) -> None:
    """See that the file is empty, or a store of no later version; nothing is changed.

    Raises:
        ForeignFile: it is something else.
        CorruptStore: it cannot be read.
        OtherVersion: it is a store of a later version.
    """
    with _told_apart(path):
        (application_id,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id != schema.APPLICATION_ID and (application_id or tables):
        raise ForeignFile(f"{path} is not a store of this program, but another database")
    version, newest = schema.version_of(db), len(schema.MIGRATIONS)
    if version > newest:
        raise OtherVersion(
            f"{path} was written by a later version of this program"
            f" (its format is {version}, the newest known here is {newest})"
        )


def check(db: sqlite3.Connection, path: Path) -> None:
    """Look for damage, as far as that is quick.

    Raises:
        CorruptStore: there is some.
    """
    whole = path.stat().st_size <= CHECK_WHOLE_BYTES
    with _told_apart(path):
        for what in [1] if whole else schema.SMALL_TABLES:
            (found,) = db.execute(f"PRAGMA quick_check({what})").fetchone()
            if found != "ok":
                raise CorruptStore(f"{path} is damaged: {' '.join(found.split())}")


def prepare(db: sqlite3.Connection, path: Path, synchronous: str) -> None:
    """Make the file a store of this version, and this connection its writer."""
    identify(db, path)
    if schema.version_of(db):
        check(db, path)
    else:
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # before there is a table, or never
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise UnwritableStore(f"{path} is on a file system that cannot share memory")
    db.execute(f"PRAGMA synchronous = {synchronous}")
    # Housekeeping sees to the log, beside the commits; where it cannot keep up, they have to wait.
    db.execute(f"PRAGMA wal_autocheckpoint = {MOST_WAL_PAGES}")
    with transaction(db, "IMMEDIATE"):
        schema.migrate(db)
