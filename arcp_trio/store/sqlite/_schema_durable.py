"""The tables of durable jobs, as the migration to version 8 makes them."""

from __future__ import annotations

from typing import Final

from arcp_trio.store.retention import ROW_BYTES

# - durable: what it takes to call a job's agent again, until the job has ended.
# - memo: what it remembers, in the order of the keys' first values.
# - said: indexes and digests, packed, of entries that are deleted and not to be said again.
# - job.kept_by: the parent, which may be called again and ask for the job: the job's retention does
#   not begin before the parent's end, when this becomes NULL. It is NULL for all other jobs.
_TABLES: Final = (
    """CREATE TABLE durable (
        jid INTEGER PRIMARY KEY,
        input BLOB NOT NULL,
        max_runtime REAL,
        sends_chunks INTEGER NOT NULL,
        wants_credentials INTEGER NOT NULL,
        forget INTEGER NOT NULL,
        run INTEGER NOT NULL,
        fruitless_runs INTEGER NOT NULL,
        spent BLOB
    )""",
    """CREATE TABLE memo (
        id INTEGER PRIMARY KEY,
        jid INTEGER NOT NULL,
        key TEXT NOT NULL,
        kind TEXT NOT NULL,
        first_index INTEGER NOT NULL,
        value BLOB NOT NULL
    )""",
    "CREATE UNIQUE INDEX memo_of_job ON memo (jid, key)",
    """CREATE TABLE said (
        jid INTEGER NOT NULL,
        last_index INTEGER NOT NULL,
        digests BLOB NOT NULL,
        PRIMARY KEY (jid, last_index)
    ) WITHOUT ROWID""",
    "ALTER TABLE job ADD COLUMN kept_by TEXT",
    "CREATE INDEX job_kept ON job (kept_by) WHERE kept_by IS NOT NULL",
)

_JOURNAL: Final = "(SELECT coalesce(sum(length(entries)), 0) FROM journal WHERE jid = old.jid)"
_MEMOS: Final = (
    "(SELECT coalesce(sum(length(key) + length(value)), 0) FROM memo WHERE jid = old.jid)"
)
_CHANGE: Final = """UPDATE share SET stored_bytes = stored_bytes {size}
    WHERE principal = (SELECT principal FROM job WHERE jid = {row}.jid)"""

# ruff: noqa: S608 - all words are from this module
_BOOKING: Final = (
    "DROP TRIGGER job_finishes",
    """CREATE TRIGGER job_finishes AFTER UPDATE OF finished_at ON job
       WHEN old.finished_at IS NULL AND new.finished_at IS NOT NULL AND new.kept_by IS NULL BEGIN
        UPDATE share SET finished_jobs = finished_jobs + 1 WHERE principal = new.principal;
    END""",
    """CREATE TRIGGER job_is_released AFTER UPDATE OF kept_by ON job
       WHEN old.kept_by IS NOT NULL AND new.kept_by IS NULL AND new.finished_at IS NOT NULL BEGIN
        UPDATE share SET finished_jobs = finished_jobs + 1 WHERE principal = new.principal;
    END""",
    "DROP TRIGGER job_goes",
    f"""CREATE TRIGGER job_goes BEFORE DELETE ON job BEGIN
        UPDATE share SET stored_bytes = stored_bytes - length(old.accepted) - {ROW_BYTES}
            - {_JOURNAL} - {_MEMOS}
        WHERE principal = old.principal;
    END""",
    f"""CREATE TRIGGER durable_comes AFTER INSERT ON durable BEGIN
        {_CHANGE.format(size="+ length(new.input)", row="new")};
    END""",
    f"""CREATE TRIGGER durable_goes AFTER DELETE ON durable BEGIN
        {_CHANGE.format(size="- length(old.input)", row="old")};
    END""",
    f"""CREATE TRIGGER memo_comes AFTER INSERT ON memo BEGIN
        {_CHANGE.format(size="+ length(new.key) + length(new.value)", row="new")};
    END""",
    f"""CREATE TRIGGER memo_changes AFTER UPDATE OF value ON memo BEGIN
        {_CHANGE.format(size="- length(old.value) + length(new.value)", row="new")};
    END""",
    "DROP INDEX job_finished",
    """CREATE INDEX job_finished ON job (principal, finished_at, terminal_ordinal)
       WHERE finished_at IS NOT NULL AND expired = 0 AND kept_by IS NULL""",
)

DURABLE: Final = (*_TABLES, *_BOOKING)
