"""Claims on idempotency keys and other names: other nodes leave a claimed one alone."""

from __future__ import annotations

from typing import Final

from arcp_trio.store.postgres._schema import Database

CLAIM: Final = """
    INSERT INTO key AS k (principal, key, fingerprint, job_id, expires_at, due, node)
    VALUES (%(principal)s, %(key)s, %(fingerprint)s, %(job_id)s, %(expires_at)s, %(expires_at)s,
        %(me)s)
    ON CONFLICT (principal, key) DO UPDATE SET fingerprint = excluded.fingerprint,
        job_id = excluded.job_id, accepted = NULL, expires_at = excluded.expires_at,
        due = excluded.due, node = excluded.node
    WHERE k.expires_at <= extract(epoch FROM now())
        AND NOT EXISTS (SELECT FROM retained AS r WHERE r.job_id = k.job_id)
    RETURNING k.job_id"""
"""Claims a key for a job, and returns the job's id, unless the key is taken or claimed."""

DROP_CLAIM: Final = """
    DELETE FROM key WHERE principal = %(principal)s AND key = %(key)s AND job_id = %(job_id)s
        AND accepted IS NULL AND node = %(me)s"""


def claimant(db: Database, principal: str, key: str) -> str | None:
    """Read for which job a key is claimed that stands for none yet."""
    found = db.execute(
        "SELECT job_id FROM key WHERE principal = %s AND key = %s AND accepted IS NULL",
        (principal, key),
    ).fetchone()
    return None if found is None else str(found[0])
