"""The tables, and the migration of a file that an older version wrote."""

from __future__ import annotations

import sqlite3
from typing import Final

from arcp_trio.store.sqlite._schema_durable import DURABLE
from arcp_trio.store.sqlite._schema_shares import SHARES, STORED_BYTES

APPLICATION_ID: Final = 0x41524350
"""`ARCP` in ASCII: marks a SQLite file as a store."""

# The tables:
#
# - journal: a job's entries, packed, a batch in each row.
# - log: which numbers of a session went to which entries, packed, a batch in each row.
# - journal_waste, log_waste: rows of these two are deleted in the background. `job.base` and
#   `session.floor` say at once what is given up; the waste tables say what of it is still on disk.
# - numbering: the numbers that a job's first session gave to its entries. They are moved here from
#   the batches of the log that are deleted; before that, they are in the log alone.
# - job: a job past its retention is `expired`, and visible only to watches that are owed its end.
# - AUTOINCREMENT: a new row must not get the number of a row whose entries are still being deleted.
_FIRST: Final = (
    """CREATE TABLE state (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        committed INTEGER NOT NULL,
        ordinal INTEGER NOT NULL
    )""",
    "INSERT INTO state VALUES (1, 0, 0)",
    """CREATE TABLE session (
        sid INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL UNIQUE,
        principal TEXT NOT NULL,
        features TEXT NOT NULL,
        dialect TEXT NOT NULL,
        top INTEGER NOT NULL,
        floor INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        acked INTEGER NOT NULL
    )""",
    # A session's resume tokens, oldest first; the last is the newest.
    """CREATE TABLE token (
        digest BLOB PRIMARY KEY,
        sid INTEGER NOT NULL,
        place INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX token_of_session ON token (sid, place)",
    """CREATE TABLE watch (
        sid INTEGER NOT NULL,
        job_id TEXT NOT NULL,
        cursor INTEGER NOT NULL,
        last_seq INTEGER NOT NULL,
        observed INTEGER NOT NULL,
        PRIMARY KEY (sid, job_id)
    ) WITHOUT ROWID""",
    "CREATE INDEX watch_of_job ON watch (job_id)",
    """CREATE TABLE log (
        id INTEGER PRIMARY KEY,
        sid INTEGER NOT NULL,
        last_place INTEGER NOT NULL,
        row INTEGER NOT NULL,
        items BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX log_of_session ON log (sid, last_place, row)",
    "CREATE TABLE log_waste (sid INTEGER PRIMARY KEY, below INTEGER NOT NULL)",
    """CREATE TABLE job (
        jid INTEGER PRIMARY KEY AUTOINCREMENT,
        job_id TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        principal TEXT NOT NULL,
        session_id TEXT NOT NULL,
        sid INTEGER,
        trace_id TEXT NOT NULL,
        accepted BLOB NOT NULL,
        created_at REAL NOT NULL,
        status TEXT NOT NULL,
        finished_at REAL,
        cancelled TEXT,
        terminal_ordinal INTEGER,
        budget BLOB,
        last_seq INTEGER NOT NULL DEFAULT 0,
        length INTEGER NOT NULL,
        base INTEGER NOT NULL DEFAULT 0,
        expired INTEGER NOT NULL DEFAULT 0
    )""",
    """CREATE INDEX job_of_principal ON job (principal, created_at, job_id, status, agent)
       WHERE expired = 0""",
    "CREATE INDEX job_unfinished ON job (jid) WHERE finished_at IS NULL",
    """CREATE INDEX job_finished ON job (finished_at, terminal_ordinal)
       WHERE finished_at IS NOT NULL AND expired = 0""",
    "CREATE INDEX job_expired ON job (jid) WHERE expired = 1",
    """CREATE TRIGGER watch_ends BEFORE DELETE ON watch BEGIN
        UPDATE job SET last_seq = max(last_seq, old.last_seq)
        WHERE job_id = old.job_id AND sid = old.sid;
    END""",
    """CREATE VIEW retained AS SELECT * FROM job WHERE expired = 0
       OR EXISTS (SELECT 1 FROM watch WHERE watch.job_id = job.job_id)""",
    """CREATE TABLE submitter (
        jid INTEGER NOT NULL,
        session_id TEXT NOT NULL,
        PRIMARY KEY (jid, session_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE journal (
        id INTEGER PRIMARY KEY,
        jid INTEGER NOT NULL,
        first_index INTEGER NOT NULL,
        last_index INTEGER NOT NULL,
        first_ordinal INTEGER NOT NULL,
        entries BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX journal_of_job ON journal (jid, last_index)",
    "CREATE TABLE journal_waste (jid INTEGER PRIMARY KEY, below INTEGER NOT NULL)",
    """CREATE TABLE numbering (
        jid INTEGER NOT NULL,
        first_seq INTEGER NOT NULL,
        index_behind INTEGER NOT NULL,
        runs BLOB NOT NULL,
        PRIMARY KEY (jid, first_seq)
    ) WITHOUT ROWID""",
    # `due` is when an expiry looks at the key; NULL once it has expired while its job is retained.
    """CREATE TABLE key (
        principal TEXT NOT NULL,
        key TEXT NOT NULL,
        fingerprint BLOB NOT NULL,
        job_id TEXT NOT NULL,
        accepted BLOB NOT NULL,
        expires_at REAL NOT NULL,
        due REAL,
        PRIMARY KEY (principal, key)
    ) WITHOUT ROWID""",
    "CREATE INDEX key_due ON key (due) WHERE due IS NOT NULL",
    "CREATE INDEX key_of_retained_job ON key (job_id) WHERE due IS NULL",
    # Provisioned credentials that are not revoked, without their values.
    """CREATE TABLE credential (
        id INTEGER PRIMARY KEY,
        row_id TEXT NOT NULL UNIQUE,
        order_id TEXT NOT NULL,
        job_id TEXT NOT NULL,
        principal TEXT NOT NULL,
        state TEXT NOT NULL,
        handle TEXT,
        credential_id TEXT
    )""",
)

_STOPPED_BY: Final = ("ALTER TABLE job ADD COLUMN stopped_by TEXT",)

# What a listing tells of a job. It is not known of jobs that were stored before.
_BRIEFS: Final = (
    "ALTER TABLE job ADD COLUMN started_at REAL",
    "ALTER TABLE job ADD COLUMN error BLOB",
    "ALTER TABLE job ADD COLUMN spent BLOB",
    "ALTER TABLE job ADD COLUMN last_event TEXT",
)

_LOG_BYTES: Final = ("ALTER TABLE session ADD COLUMN log_bytes INTEGER NOT NULL DEFAULT 0",)

# Listings: all jobs of a principal, those of one agent and status, and everybody's for observers,
# whose filters look at each job in the index.
_FILTERS: Final = (
    "DROP INDEX job_of_principal",
    "CREATE INDEX job_of_principal ON job (principal, created_at, job_id) WHERE expired = 0",
    """CREATE INDEX job_of_agent ON job (principal, agent, status, created_at, job_id)
       WHERE expired = 0""",
    "CREATE INDEX job_of_anyone ON job (created_at, job_id, status, agent) WHERE expired = 0",
)

# Of jobs and sessions that were stored before, neither is known: nobody is asked.
_ABOUT_CLIENTS: Final = (
    "ALTER TABLE durable ADD COLUMN knows_questions INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE session ADD COLUMN client TEXT NOT NULL DEFAULT ''",
)

MIGRATIONS: Final[list[tuple[str, ...]]] = [
    _FIRST,
    _STOPPED_BY,
    _BRIEFS,
    SHARES,
    _LOG_BYTES,
    _FILTERS,
    STORED_BYTES,
    DURABLE,
    _ABOUT_CLIENTS,
]
"""Item n makes version n + 1 out of version n. Never edit a released one; append another."""

SMALL_TABLES: Final = (
    "state",
    "session",
    "token",
    "watch",
    "job",
    "submitter",
    "key",
    "credential",
    "log_waste",
    "share",
    "durable",
    "said",
)
"""All tables but those of entries and numbers."""


def version_of(db: sqlite3.Connection) -> int:
    """Return the version of a store, 0 for an empty file."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def migrate(db: sqlite3.Connection) -> None:
    """Migrate a store to this version, within the caller's transaction."""
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    for statements in MIGRATIONS[version_of(db) :]:
        for statement in statements:
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
