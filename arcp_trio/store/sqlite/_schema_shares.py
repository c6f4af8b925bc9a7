"""The table of what each principal has, as the migrations to versions 4 and 7 make it."""

from __future__ import annotations

from typing import Final

from arcp_trio.store.retention import ROW_BYTES

# Finished jobs are counted by triggers, because to count them by reading would take longer the more
# there are. A principal without any has no row.
SHARES: Final = (
    """CREATE TABLE share (
        principal TEXT PRIMARY KEY,
        finished_jobs INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """INSERT INTO share SELECT principal, count(*) FROM job
       WHERE finished_at IS NOT NULL AND expired = 0 GROUP BY principal""",
    """CREATE TRIGGER job_finishes AFTER UPDATE OF finished_at ON job
       WHEN old.finished_at IS NULL AND new.finished_at IS NOT NULL BEGIN
        INSERT INTO share VALUES (new.principal, 1)
        ON CONFLICT DO UPDATE SET finished_jobs = finished_jobs + 1;
    END""",
    """CREATE TRIGGER job_expires AFTER UPDATE OF expired ON job
       WHEN old.expired = 0 AND new.expired = 1 BEGIN
        UPDATE share SET finished_jobs = finished_jobs - 1 WHERE principal = new.principal;
        DELETE FROM share WHERE principal = new.principal AND finished_jobs = 0;
    END""",
    "DROP INDEX job_finished",
    """CREATE INDEX job_finished ON job (principal, finished_at, terminal_ordinal)
       WHERE finished_at IS NOT NULL AND expired = 0""",
)

# Stored bytes are booked by triggers, too: of jobs, of their journals, of what only the logs of
# sessions have, and of keys. A job that is deleted takes its journal with it, whose rows follow
# later.
_ROW: Final = str(ROW_BYTES)
_JOURNAL_BYTES: Final = "(SELECT coalesce(sum(length(entries)), 0) FROM journal WHERE jid = {}.jid)"
_BOOK: Final = """INSERT INTO share (principal, finished_jobs, stored_bytes)
    VALUES (new.principal, 0, {}) ON CONFLICT DO UPDATE
    SET stored_bytes = stored_bytes + excluded.stored_bytes"""
_CHANGE: Final = "UPDATE share SET stored_bytes = stored_bytes {} WHERE principal = {}"
_OF_JOB: Final = "(SELECT principal FROM job WHERE jid = {}.jid)"
STORED_BYTES: Final = (
    "ALTER TABLE share ADD COLUMN stored_bytes INTEGER NOT NULL DEFAULT 0",
    "DROP TRIGGER job_finishes",
    "DROP TRIGGER job_expires",
    # ruff: noqa: S608 - all words are from this module
    f"""INSERT INTO share (principal, finished_jobs, stored_bytes)
        SELECT principal, 0, sum(size) FROM (
            SELECT principal, length(accepted) + {_ROW} + {_JOURNAL_BYTES.format("job")} AS size
                FROM job
            UNION ALL SELECT principal, log_bytes + {_ROW} FROM session
            UNION ALL SELECT principal, length(accepted) + {_ROW} FROM key
        ) WHERE true GROUP BY principal ON CONFLICT DO UPDATE
        SET stored_bytes = excluded.stored_bytes""",
    """CREATE TRIGGER share_ends AFTER UPDATE ON share
       WHEN new.finished_jobs = 0 AND new.stored_bytes = 0 BEGIN
        DELETE FROM share WHERE principal = new.principal;
    END""",
    f"""CREATE TRIGGER job_comes AFTER INSERT ON job BEGIN
        {_BOOK.format(f"length(new.accepted) + {_ROW}")};
    END""",
    """CREATE TRIGGER job_finishes AFTER UPDATE OF finished_at ON job
       WHEN old.finished_at IS NULL AND new.finished_at IS NOT NULL BEGIN
        UPDATE share SET finished_jobs = finished_jobs + 1 WHERE principal = new.principal;
    END""",
    """CREATE TRIGGER job_expires AFTER UPDATE OF expired ON job
       WHEN old.expired = 0 AND new.expired = 1 BEGIN
        UPDATE share SET finished_jobs = finished_jobs - 1 WHERE principal = new.principal;
    END""",
    f"""CREATE TRIGGER job_goes BEFORE DELETE ON job BEGIN
        {
        _CHANGE.format(
            f"- length(old.accepted) - {_ROW} - {_JOURNAL_BYTES.format('old')}", "old.principal"
        )
    };
    END""",
    f"""CREATE TRIGGER journal_comes AFTER INSERT ON journal BEGIN
        {_CHANGE.format("+ length(new.entries)", _OF_JOB.format("new"))};
    END""",
    f"""CREATE TRIGGER journal_goes AFTER DELETE ON journal BEGIN
        {_CHANGE.format("- length(old.entries)", _OF_JOB.format("old"))};
    END""",
    f"""CREATE TRIGGER session_comes AFTER INSERT ON session BEGIN
        {_BOOK.format(f"new.log_bytes + {_ROW}")};
    END""",
    f"""CREATE TRIGGER session_grows AFTER UPDATE OF log_bytes ON session
       WHEN old.log_bytes <> new.log_bytes BEGIN
        {_CHANGE.format("- old.log_bytes + new.log_bytes", "new.principal")};
    END""",
    f"""CREATE TRIGGER session_goes AFTER DELETE ON session BEGIN
        {_CHANGE.format(f"- old.log_bytes - {_ROW}", "old.principal")};
    END""",
    f"""CREATE TRIGGER key_comes AFTER INSERT ON key BEGIN
        {_BOOK.format(f"length(new.accepted) + {_ROW}")};
    END""",
    f"""CREATE TRIGGER key_goes AFTER DELETE ON key BEGIN
        {_CHANGE.format(f"- length(old.accepted) - {_ROW}", "old.principal")};
    END""",
)
