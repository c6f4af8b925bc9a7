"""Functions and triggers: the fence, and what principals have."""

from __future__ import annotations

from typing import Final

from arcp_trio.store.retention import ROW_BYTES

# `SCHEMA` stands for the name of the schema: the functions work under any search path.

# A writer's group begins with this. Its error takes back whatever follows in the transaction. It
# finds no row if the node is gone, and also if the group before has been stored already, or was
# forgotten by a failover; the writer then looks which it is.
_FENCE: Final = """CREATE FUNCTION fence(me bigint, number bigint, highest bigint) RETURNS void
    LANGUAGE plpgsql AS $$ BEGIN
        UPDATE SCHEMA.node SET committed = number, ordinal = greatest(ordinal, highest)
            WHERE node.node = me AND state <> 'gone' AND committed = number - 1;
        IF NOT FOUND THEN RAISE 'fenced' USING ERRCODE = 'ARCP1'; END IF;
    END $$"""

# Every other transaction of a node begins with this. It lets groups go on, and keeps the node from
# being fenced until it ends.
_MEMBER: Final = """CREATE FUNCTION member(me bigint) RETURNS void
    LANGUAGE plpgsql AS $$ BEGIN
        PERFORM FROM SCHEMA.node WHERE node.node = me AND state <> 'gone' FOR KEY SHARE;
        IF NOT FOUND THEN RAISE 'fenced' USING ERRCODE = 'ARCP1'; END IF;
    END $$"""

# What is inserted, changed and deleted is booked by statement, for the node that `arcp.node` names.
# A job that is deleted takes its journal and memos with it, whose rows follow later.
_BOOK: Final = """INSERT INTO SCHEMA.share AS s (principal, node, finished_jobs, stored_bytes)
    SELECT principal, coalesce(nullif(current_setting('arcp.node', true), ''), '0')::bigint, {sums}
    FROM {rows} GROUP BY principal ORDER BY principal
    ON CONFLICT (principal, node) DO UPDATE SET
        finished_jobs = s.finished_jobs + excluded.finished_jobs,
        stored_bytes = s.stored_bytes + excluded.stored_bytes;"""


def _booking(name: str, table: str, event: str, sums: str, rows: str) -> tuple[str, str]:
    """Return a function that books, and the trigger that calls it after a kind of statement."""
    seen = {
        "INSERT": "NEW TABLE AS new_rows",
        "DELETE": "OLD TABLE AS old_rows",
        "UPDATE": "OLD TABLE AS old_rows NEW TABLE AS new_rows",
    }[event]
    body = f"BEGIN {_BOOK.format(sums=sums, rows=rows)} RETURN NULL; END"
    return (
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$",
        f"""CREATE TRIGGER {name} AFTER {event} ON {table} REFERENCING {seen}
            FOR EACH STATEMENT EXECUTE FUNCTION {name}()""",
    )


def _growth(column: str, value: str) -> str:
    """Return rows that say by how much a sum grows with an update, for each value of a column.

    Old rows are not joined with new ones: a plan that was made for one of them would compare each
    with each.
    """
    return f"""(SELECT {column}, sum(each) AS grown FROM (
            SELECT {column}, {value} AS each FROM new_rows
            UNION ALL SELECT {column}, -({value}) FROM old_rows) AS both_rows
        GROUP BY {column} HAVING sum(each) <> 0) AS changed"""


# ruff: noqa: S608 - all words are from this module
_JOB: Final = f"length(accepted) + {ROW_BYTES}"
_JOURNAL: Final = (
    "(SELECT coalesce(sum(length(entries)), 0) FROM SCHEMA.journal j WHERE j.jid = o.jid)"
)
_MEMOS: Final = """(SELECT coalesce(sum(length(key) + length(value)), 0) FROM SCHEMA.memo m
    WHERE m.jid = o.jid)"""
_COUNTS: Final = "(finished_at IS NOT NULL AND NOT expired AND kept_by IS NULL)::int"
_ACCEPTED: Final = "coalesce(length(accepted), 0)"
_KEY: Final = f"{_ACCEPTED} + {ROW_BYTES}"

_CHANGES: Final = (
    *_booking("job_changes", "job", "UPDATE", "sum(grown), 0", _growth("principal", _COUNTS)),
    *_booking(
        "session_changes", "session", "UPDATE", "0, sum(grown)", _growth("principal", "log_bytes")
    ),
    *_booking("key_changes", "key", "UPDATE", "0, sum(grown)", _growth("principal", _ACCEPTED)),
    *_booking(
        "memo_changes",
        "memo",
        "UPDATE",
        "0, sum(grown)",
        f"{_growth('jid', 'length(value)')} JOIN SCHEMA.job USING (jid)",
    ),
)

TRIGGERS: Final = (
    _FENCE,
    _MEMBER,
    *_CHANGES,
    *_booking("job_comes", "job", "INSERT", f"0, sum({_JOB})", "new_rows"),
    *_booking(
        "job_goes", "job", "DELETE", f"0, -sum({_JOB} + {_JOURNAL} + {_MEMOS})", "old_rows o"
    ),
    *_booking(
        "journal_comes",
        "journal",
        "INSERT",
        "0, sum(length(entries))",
        "new_rows JOIN SCHEMA.job USING (jid)",
    ),
    *_booking(
        "journal_goes",
        "journal",
        "DELETE",
        "0, -sum(length(entries))",
        "old_rows JOIN SCHEMA.job USING (jid)",
    ),
    *_booking(
        "durable_comes",
        "durable",
        "INSERT",
        "0, sum(length(input))",
        "new_rows JOIN SCHEMA.job USING (jid)",
    ),
    *_booking(
        "durable_goes",
        "durable",
        "DELETE",
        "0, -sum(length(input))",
        "old_rows JOIN SCHEMA.job USING (jid)",
    ),
    *_booking(
        "memo_comes",
        "memo",
        "INSERT",
        "0, sum(length(key) + length(value))",
        "new_rows JOIN SCHEMA.job USING (jid)",
    ),
    *_booking("session_comes", "session", "INSERT", f"0, sum(log_bytes + {ROW_BYTES})", "new_rows"),
    *_booking("session_goes", "session", "DELETE", f"0, -sum(log_bytes + {ROW_BYTES})", "old_rows"),
    *_booking("key_comes", "key", "INSERT", f"0, sum({_KEY})", "new_rows"),
    *_booking("key_goes", "key", "DELETE", f"0, -sum({_KEY})", "old_rows"),
)
"""What version 1 has."""

GROWTHS: Final = _CHANGES[::2]
"""The functions that version 4 makes again: before, they joined old rows with new ones."""
