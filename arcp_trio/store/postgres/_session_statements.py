"""The statements that store what is written about sessions."""

from __future__ import annotations

from typing import Final

PUT: Final = """
    INSERT INTO session (session_id, principal, features, dialect, top, floor, rows, acked,
        log_bytes, client, node)
    SELECT c.*, %(me)b FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[], %(3)b::text[],
        %(4)b::bigint[], %(5)b::bigint[], %(6)b::bigint[], %(7)b::boolean[], %(8)b::bigint[],
        %(9)b::text[]) AS c"""

# One that another node has locked is not waited for: it is just taking it, or stands still.
TAKE: Final = """
    UPDATE session SET node = %(me)b, parked_until = NULL, moves = moves + 1 WHERE sid IN (
        SELECT s.sid FROM unnest(%(0)b::text[], %(1)b::bigint[], %(2)b::bigint[])
            AS c (session_id, node, moves) JOIN session AS s USING (session_id)
        WHERE coalesce(s.node, 0) = c.node AND s.moves = c.moves
        FOR NO KEY UPDATE OF s SKIP LOCKED)"""

# It locks the rows of the sessions, and returns those that are this node's.
CHANGE: Final = """
    WITH mine AS (
        UPDATE session AS s SET top = coalesce(nullif(c.top, -1), s.top),
            rows = coalesce(nullif(c.rows, -1), s.rows),
            floor = coalesce(nullif(c.floor, -1), s.floor),
            log_bytes = coalesce(nullif(c.log_bytes, -1), s.log_bytes),
            acked = s.acked OR c.acked, closes = s.closes + c.closed::int
        FROM unnest(%(0)b::text[], %(1)b::bigint[], %(2)b::bigint[], %(3)b::bigint[],
            %(4)b::bigint[], %(5)b::boolean[], %(6)b::boolean[])
            AS c (session_id, top, rows, floor, log_bytes, acked, closed)
        WHERE s.session_id = c.session_id AND s.node = %(me)b
        RETURNING s.sid, s.session_id
    ), logged AS (
        INSERT INTO log (sid, last_place, row, items)
        SELECT mine.sid, c.last_place, c.row, c.items
        FROM unnest(%(7)b::text[], %(8)b::bigint[], %(9)b::bigint[], %(10)b::bytea[])
            AS c (session_id, last_place, row, items) JOIN mine USING (session_id)
    ), watched AS (
        INSERT INTO watch (sid, jid, cursor, last_seq, observed)
        SELECT mine.sid, j.jid, c.cursor, c.last_seq, c.observed
        FROM unnest(%(11)b::text[], %(12)b::text[], %(13)b::bigint[], %(14)b::bigint[],
            %(15)b::boolean[]) AS c (session_id, job_id, cursor, last_seq, observed)
        JOIN mine USING (session_id) JOIN job AS j ON j.job_id = c.job_id
        ON CONFLICT (sid, jid) DO UPDATE SET cursor = excluded.cursor,
            last_seq = greatest(watch.last_seq, excluded.last_seq),
            observed = watch.observed OR excluded.observed
    )
    SELECT session_id FROM mine"""

NEGOTIATE: Final = """
    UPDATE session AS s SET features = c.features, dialect = c.dialect, client = c.client
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::text[], %(3)b::text[])
        AS c (session_id, features, dialect, client)
    WHERE s.session_id = c.session_id AND s.node = %(me)b"""

DROP_TOKENS: Final = """
    DELETE FROM token USING session
    WHERE session_id = ANY(%(0)b::text[]) AND node = %(me)b AND token.sid = session.sid"""

PUT_TOKENS: Final = """
    INSERT INTO token (digest, sid, place) SELECT c.digest, s.sid, c.place
    FROM unnest(%(0)b::text[], %(1)b::bytea[], %(2)b::bigint[]) AS c (session_id, digest, place)
    JOIN session AS s ON s.session_id = c.session_id AND s.node = %(me)b"""

UNWATCH: Final = """
    WITH ended AS (
        DELETE FROM watch AS w
        USING unnest(%(0)b::text[], %(1)b::text[]) AS c (session_id, job_id), session AS s, job AS j
        WHERE s.session_id = c.session_id AND s.node = %(me)b AND j.job_id = c.job_id
            AND w.sid = s.sid AND w.jid = j.jid
        RETURNING w.jid, w.last_seq, j.sid = w.sid AS first)
    INSERT INTO last_number (jid, seq) SELECT jid, last_seq FROM ended WHERE first AND last_seq > 0
    ON CONFLICT (jid) DO UPDATE SET seq = greatest(last_number.seq, excluded.seq)"""

TOLD: Final = """
    UPDATE submitter AS t SET told = true
    FROM unnest(%(0)b::text[], %(1)b::text[]) AS c (session_id, job_id), session AS s, job AS j
    WHERE s.session_id = c.session_id AND s.node = %(me)b AND j.job_id = c.job_id
        AND t.jid = j.jid AND t.session_id = c.session_id AND NOT t.told"""

# A session that its client has closed in the same group has submitted the job before that.
ADD_SUBMITTER: Final = """
    INSERT INTO submitter (jid, session_id, told, closes)
    SELECT j.jid, c.session_id, true, coalesce(s.closes, 0) - c.closed::int
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::boolean[]) AS c (session_id, job_id, closed)
    JOIN job AS j ON j.job_id = c.job_id
    LEFT JOIN session AS s ON s.session_id = c.session_id
    WHERE s.sid IS NULL OR s.node = %(me)b
    ON CONFLICT (jid, session_id) DO UPDATE SET told = true"""

SUBMIT_AGAIN: Final = """
    UPDATE submitter AS t SET closes = s.closes - c.closed::int
    FROM unnest(%(0)b::text[], %(1)b::text[], %(2)b::boolean[]) AS c (session_id, job_id, closed),
        session AS s, job AS j
    WHERE s.session_id = c.session_id AND s.node = %(me)b AND j.job_id = c.job_id
        AND t.jid = j.jid AND t.session_id = c.session_id"""

WASTE: Final = """
    INSERT INTO log_waste (sid, below) SELECT s.sid, c.below
    FROM unnest(%(0)b::text[], %(1)b::bigint[]) AS c (session_id, below)
    JOIN session AS s ON s.session_id = c.session_id AND s.node = %(me)b
    ON CONFLICT (sid) DO UPDATE SET below = greatest(log_waste.below, excluded.below)"""

# Tokens and watches go with their session.
DROP: Final = """
    WITH numbers AS (
        INSERT INTO last_number (jid, seq) SELECT w.jid, w.last_seq
        FROM session AS s JOIN watch AS w USING (sid) JOIN job AS j USING (jid)
        WHERE s.session_id = ANY(%(0)b::text[]) AND s.node = %(me)b
            AND j.sid = w.sid AND w.last_seq > 0
        ON CONFLICT (jid) DO UPDATE SET seq = greatest(last_number.seq, excluded.seq))
    DELETE FROM session WHERE session_id = ANY(%(0)b::text[]) AND node = %(me)b"""

RELEASE: Final = """
    UPDATE session AS s
    SET node = NULL, parked_until = now() + make_interval(secs => c.seconds)
    FROM unnest(%(0)b::text[], %(1)b::float8[]) AS c (session_id, seconds)
    WHERE s.session_id = c.session_id AND s.node = %(me)b"""
