"""Commands between nodes: rows that one node inserts, and another one answers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from arcp_trio.store.postgres._schema import Database
from arcp_trio.store.shared import OpenCommand

ASK: Final = """
    INSERT INTO command (node, asker, number, kind, about, body)
    SELECT there.node, %(me)s, %(number)s, %(kind)s, %(about)s, %(body)s FROM (
        SELECT coalesce(node, %(me)s) AS node FROM job WHERE job_id = %(about)s
        UNION ALL SELECT node FROM session WHERE session_id = %(about)s
    ) AS there WHERE there.node IS NOT NULL
    RETURNING node"""
"""Asks the node that has the job or the session now; returns its number.

A job that waits for a node is asked for by a command to this one, for the node that takes the job.
"""

ASK_AGAIN: Final = """
    UPDATE command SET node = there.node FROM command AS asked, LATERAL (
        SELECT coalesce(node, %(me)s) AS node FROM job WHERE job_id = asked.about
        UNION ALL SELECT node FROM session WHERE session_id = asked.about
    ) AS there
    WHERE asked.asker = %(me)s AND asked.number = %(number)s AND asked.answer IS NULL
        AND command.id = asked.id AND command.answer IS NULL AND command.node <> there.node
    RETURNING command.node"""
"""Asks the node that has the job or the session by now, unless it has been asked."""

ANSWER: Final = """
    UPDATE command SET answer = %(answer)s
    WHERE id = %(command)s AND node = %(me)s AND answer IS NULL
    RETURNING asker"""
"""Answers a command, and returns the number of the node that has asked."""

DROP: Final = """
    DELETE FROM command WHERE id = ANY (ARRAY(
        SELECT id FROM command WHERE asker = %(me)s AND number = ANY(%(numbers)s)
        FOR UPDATE SKIP LOCKED))"""
"""Removes commands, but none that is being answered just now: the node that answers may stand
still, and everything that this one writes would wait. The cleaning removes old answers.
"""

SHOW_KEY: Final = "UPDATE node SET public_key = %(public_key)s WHERE node = %(me)s"

MOST_COMMANDS: Final = 256
MOST_BYTES: Final = 1024 * 1024
"""The bounds of a piece in which open commands are read; its last body may exceed the bytes."""

_OPEN: Final = """
    SELECT id, asker, kind, about, body FROM (
        SELECT *, sum(length(body)) OVER (ORDER BY id) - length(body) AS before FROM (
            SELECT id, asker, kind, about, body FROM command
            WHERE node = %s AND answer IS NULL AND id <> ALL(%s::bigint[]) ORDER BY id LIMIT %s
        ) AS asked
    ) AS piece WHERE before <= %s ORDER BY id"""

_ANSWERS: Final = "SELECT number, answer FROM command WHERE asker = %s AND answer IS NOT NULL"

_PUBLIC_KEY: Final = """
    SELECT public_key FROM node JOIN session USING (node)
    WHERE node = %s AND session_id = %s AND state <> 'gone'"""

_SUBMITTERS: Final = """
    WITH RECURSIVE above AS (
        SELECT jid, parent_jid FROM job WHERE job_id = %s
        UNION ALL
        SELECT job.jid, job.parent_jid FROM job JOIN above ON job.jid = above.parent_jid
    )
    SELECT session_id FROM above JOIN submitter USING (jid) JOIN session USING (session_id)
    WHERE submitter.closes = session.closes
        AND (node IS NOT NULL OR parked_until IS NULL OR parked_until > now())"""


def open_commands(db: Database, me: int, known: Collection[int]) -> list[OpenCommand]:
    """Read some of what this node was asked and has not answered; see `Commands`."""
    rows = db.execute(_OPEN, (me, [*known], MOST_COMMANDS, MOST_BYTES))
    return [OpenCommand(*row) for row in rows.fetchall()]


def answers(db: Database, me: int) -> dict[int, bytes]:
    """Read the answers to what this node has asked, by number."""
    return dict(db.execute(_ANSWERS, (me,)).fetchall())


def submitters(db: Database, job_id: str) -> frozenset[str]:
    """Read which sessions may cancel a job."""
    return frozenset(name for (name,) in db.execute(_SUBMITTERS, (job_id,)).fetchall())


def public_key(db: Database, node: int, session_id: str) -> bytes | None:
    """Read the public key of a node that has a session awake."""
    row = db.execute(_PUBLIC_KEY, (node, session_id)).fetchone()
    return None if row is None else row[0]
