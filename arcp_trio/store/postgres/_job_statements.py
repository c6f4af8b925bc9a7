"""The statements that store what is written about jobs and their credentials."""

from __future__ import annotations

from typing import Final

# A session that is stolen meanwhile waits for the job, which it has to be told of; one that was
# stolen before leads to no job.
LOCK_SESSIONS: Final = """
    SELECT FROM session WHERE session_id = ANY(%(0)b::text[]) ORDER BY sid FOR SHARE"""

# A key that another node has taken is left alone, and its job is not inserted; nor is the job of a
# session that another node has. A key that has expired is taken once its job is gone.
ACCEPT: Final = """
    WITH locked AS MATERIALIZED (
        SELECT sid, session_id, node FROM session WHERE session_id = ANY(%(3)b::text[])
        ORDER BY session_id FOR NO KEY UPDATE
    ), asked AS MATERIALIZED (
        SELECT c.*, s.sid, p.jid AS parent_jid
        FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[], %(3)b::text[], %(4)b::text[],
            %(5)b::bytea[], %(6)b::text[], %(7)b::float8[], %(8)b::text[], %(9)b::float8[],
            %(10)b::bigint[], %(11)b::text[], %(12)b::text[], %(13)b::text[], %(14)b::bytea[],
            %(15)b::bytea[], %(16)b::float8[]) WITH ORDINALITY
            AS c (job_id, agent, principal, session_id, trace_id, accepted, request_id, created_at,
                status, finished_at, length, parent, kept_by, key, fingerprint, key_accepted,
                expires_at, place)
        LEFT JOIN locked AS s ON s.session_id = c.session_id
        LEFT JOIN job AS p ON p.job_id = c.parent
        WHERE c.parent IS NOT NULL OR s.sid IS NULL OR s.node = %(me)b
    ), taken AS (
        INSERT INTO key AS k
            (principal, key, fingerprint, job_id, accepted, expires_at, due, node)
        SELECT principal, key, fingerprint, job_id, key_accepted, expires_at, expires_at, %(me)b
        FROM asked WHERE key IS NOT NULL ORDER BY principal, key
        ON CONFLICT (principal, key) DO UPDATE SET fingerprint = excluded.fingerprint,
            job_id = excluded.job_id, accepted = excluded.accepted,
            expires_at = excluded.expires_at, due = excluded.due, node = excluded.node
        WHERE k.job_id = excluded.job_id
            OR k.expires_at <= extract(epoch FROM now())
            AND NOT EXISTS (SELECT FROM retained AS r WHERE r.job_id = k.job_id)
        RETURNING k.job_id
    )
    INSERT INTO job (job_id, agent, principal, session_id, sid, parent_jid, trace_id, accepted,
        request_id, created_at, status, finished_at, length, kept_by, node)
    SELECT job_id, agent, principal, session_id, sid, parent_jid, trace_id, accepted, request_id,
        created_at, status, finished_at, length, kept_by, %(me)b
    FROM asked WHERE key IS NULL OR job_id IN (SELECT job_id FROM taken) ORDER BY place
    RETURNING job_id"""

# The session that has submitted a job is yet to be told that it was accepted.
SUBMITTERS: Final = """
    INSERT INTO submitter (jid, session_id, told, closes)
    SELECT j.jid, c.session_id, c.told, coalesce(s.closes, 0)
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::boolean[]) AS c (job_id, session_id, told)
    JOIN job AS j ON j.job_id = c.job_id
    LEFT JOIN session AS s ON s.session_id = c.session_id
    WHERE c.told OR s.sid IS NOT NULL
    ON CONFLICT (jid, session_id) DO NOTHING"""

DURABLE: Final = """
    INSERT INTO durable (jid, input, max_runtime, sends_chunks, wants_credentials, forget, run,
        fruitless_runs, spent, knows_questions)
    SELECT j.jid, c.input, c.max_runtime, c.sends_chunks, c.wants_credentials, c.forget, c.run,
        c.fruitless_runs, c.spent, c.knows_questions
    FROM unnest(%(0)b::text[], %(1)b::bytea[], %(2)b::float8[], %(3)b::boolean[], %(4)b::boolean[],
        %(5)b::boolean[], %(6)b::bigint[], %(7)b::bigint[], %(8)b::bytea[],
        %(9)b::boolean[])
        AS c (job_id, input, max_runtime, sends_chunks, wants_credentials, forget, run,
            fruitless_runs, spent, knows_questions)
    JOIN job AS j ON j.job_id = c.job_id"""

# Sessions of other nodes are among them. One that is being deleted is left out.
CHILD_WATCHES: Final = """
    INSERT INTO watch (sid, jid, cursor, last_seq, observed) SELECT s.sid, j.jid, 0, 0, false
    FROM unnest(%(0)b::text[], %(1)b::text[]) AS c (job_id, parent)
    JOIN job AS j ON j.job_id = c.job_id
    JOIN job AS p ON p.job_id = c.parent
    JOIN watch AS w ON w.jid = p.jid AND NOT w.observed
    JOIN session AS s ON s.sid = w.sid
    FOR KEY SHARE OF s
    ON CONFLICT (sid, jid) DO NOTHING"""

START: Final = """
    UPDATE job AS j SET status = 'running', started_at = c.started_at
    FROM unnest(%(0)b::text[], %(1)b::float8[]) AS c (job_id, started_at)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

CANCEL: Final = """
    UPDATE job AS j SET cancelled = c.reason, stopped_by = c.stopped_by
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[]) AS c (job_id, reason, stopped_by)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

SPEND: Final = """
    UPDATE job AS j SET budget = c.budget, spent = c.spent
    FROM unnest(%(0)b::text[], %(1)b::bytea[], %(2)b::bytea[]) AS c (job_id, budget, spent)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

QUESTIONS: Final = """
    UPDATE job AS j SET questions = c.questions
    FROM unnest(%(0)b::text[], %(1)b::bytea[]) AS c (job_id, questions)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

FINISH: Final = """
    UPDATE job AS j SET status = c.status, started_at = coalesce(c.started_at, j.started_at),
        finished_at = c.finished_at, terminal_ordinal = c.ordinal, length = c.length,
        budget = c.budget, error = c.error, spent = c.spent, last_event = c.last_event,
        questions = NULL
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::float8[], %(3)b::float8[], %(4)b::bigint[],
        %(5)b::bigint[], %(6)b::bytea[], %(7)b::bytea[], %(8)b::bytea[], %(9)b::text[])
        AS c (job_id, status, started_at, finished_at, ordinal, length, budget, error, spent,
            last_event)
    WHERE j.job_id = c.job_id AND j.node = %(me)b"""

END_DURABLE: Final = """
    WITH ended AS (SELECT jid FROM job WHERE job_id = ANY(%(0)b::text[]) AND node = %(me)b),
    said_no_more AS (DELETE FROM said USING ended WHERE said.jid = ended.jid)
    DELETE FROM durable USING ended WHERE durable.jid = ended.jid"""

LET_GO: Final = """
    UPDATE job AS child SET kept_by = NULL FROM job AS parent
    WHERE child.kept_by = ANY(%(0)b::text[]) AND parent.job_id = child.kept_by
        AND parent.node = %(me)b"""

# It returns whom to wake: nodes that follow these journals.
JOURNAL: Final = """
    WITH added AS (
        INSERT INTO journal (jid, first_index, last_index, first_ordinal, entries)
        SELECT j.jid, c.first_index, c.last_index, c.first_ordinal, c.entries
        FROM unnest(%(0)b::text[], %(1)b::bigint[], %(2)b::bigint[], %(3)b::bigint[],
            %(4)b::bytea[]) AS c (job_id, first_index, last_index, first_ordinal, entries)
        JOIN job AS j ON j.job_id = c.job_id AND j.node = %(me)b
        RETURNING jid)
    SELECT DISTINCT node, jid FROM added JOIN follow USING (jid)"""

MEMO: Final = """
    INSERT INTO memo (jid, key, kind, first_index, value)
    SELECT j.jid, c.key, c.kind, c.first_index, c.value
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[], %(3)b::bigint[], %(4)b::bytea[])
        WITH ORDINALITY AS c (job_id, key, kind, first_index, value, place)
    JOIN job AS j ON j.job_id = c.job_id AND j.node = %(me)b ORDER BY c.place
    ON CONFLICT (jid, hashtextextended(key, 0), hashtextextended(key, 1))
    DO UPDATE SET kind = excluded.kind, value = excluded.value"""

RUN: Final = """
    UPDATE durable AS d SET run = c.run, fruitless_runs = c.fruitless_runs
    FROM unnest(%(0)b::text[], %(1)b::bigint[], %(2)b::bigint[]) AS c (job_id, run, fruitless_runs)
    JOIN job AS j ON j.job_id = c.job_id AND j.node = %(me)b WHERE d.jid = j.jid"""

SPENT: Final = """
    UPDATE durable AS d SET spent = c.spent
    FROM unnest(%(0)b::text[], %(1)b::bytea[]) AS c (job_id, spent)
    JOIN job AS j ON j.job_id = c.job_id AND j.node = %(me)b WHERE d.jid = j.jid"""

TRIM: Final = """
    WITH trimmed AS (
        UPDATE job AS j SET base = c.base
        FROM unnest(%(0)b::text[], %(1)b::bigint[]) AS c (job_id, base)
        WHERE j.job_id = c.job_id AND j.node = %(me)b RETURNING j.jid, j.base)
    INSERT INTO journal_waste (jid, below) SELECT jid, base FROM trimmed
    ON CONFLICT (jid) DO UPDATE SET below = greatest(journal_waste.below, excluded.below)"""

REVOKED: Final = "DELETE FROM credential WHERE row_id = ANY(%(0)b::text[]) AND node = %(me)b"

CREDENTIAL: Final = """
    INSERT INTO credential AS k
        (row_id, order_id, job_id, principal, state, handle, credential_id, node)
    SELECT c.*, %(me)b FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[], %(3)b::text[],
        %(4)b::text[], %(5)b::text[], %(6)b::text[]) AS c
    ON CONFLICT (row_id) DO UPDATE SET state = excluded.state WHERE k.node = excluded.node"""
