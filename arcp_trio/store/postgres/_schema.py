"""The versions of the schema: how it is made, migrated, and opened to the role of the nodes."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from psycopg import Connection, sql

from arcp_trio.store.postgres._tables import TABLES
from arcp_trio.store.postgres._triggers import GROWTHS, TRIGGERS

Database: TypeAlias = Connection[tuple[Any, ...]]
"""A connection whose rows are tuples."""

OLDEST_SERVER: Final = 140000
"""The oldest version of PostgreSQL that will do, as the server gives it."""

# A trigger, because nodes of version 1 beat, too, and know nothing of the column.
_TIMES_OF_BEATS: Final = (
    "ALTER TABLE beat ADD COLUMN beat_at timestamptz NOT NULL DEFAULT now()",
    """CREATE FUNCTION beat_comes() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NEW.beat_at = clock_timestamp(); RETURN NEW; END $$""",
    """CREATE TRIGGER beat_comes BEFORE UPDATE ON beat FOR EACH ROW
        WHEN (NEW.beats <> OLD.beats) EXECUTE FUNCTION beat_comes()""",
)

# NULL: the node can open nothing that is sealed, as no node of an earlier version can.
_PUBLIC_KEYS: Final = ("ALTER TABLE node ADD COLUMN public_key bytea",)

# Neither is known of what was stored before, and by nodes of an earlier version.
CLIENTS: Final = (
    """ALTER TABLE session ADD COLUMN IF NOT EXISTS client text COLLATE "C" NOT NULL DEFAULT ''""",
    "ALTER TABLE durable ADD COLUMN IF NOT EXISTS knows_questions boolean NOT NULL DEFAULT false",
)

MIGRATIONS: Final[list[tuple[str, ...]]] = [
    (*TABLES, *TRIGGERS),
    _TIMES_OF_BEATS,
    _PUBLIC_KEYS,
    GROWTHS,
    CLIENTS,
]
"""Item n makes version n + 1 out of version n. Never edit a released one; append another."""

OLDEST_WRITERS: Final = [1, 1, 1, 1, 1]
"""The oldest version that may still write once version n + 1 is there: one that expands only leaves
it as it was, one that contracts raises it."""

MIGRATING: Final = 0x41524350
"""The advisory lock under which a schema is made or migrated, `ARCP` in ASCII."""


def versions(db: Database) -> tuple[int, int] | None:
    """Read the version of the schema and its oldest writer; None without a schema of ours.

    The search path is the schema alone.
    """
    known = db.execute(
        "SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = pg_catalog.to_regclass('schema')"
        " AND attname = 'oldest_writer'"
    ).fetchone()
    if known is None:
        return None
    return db.execute("SELECT version, oldest_writer FROM schema").fetchone()


def migrate(db: Database, schema: str) -> None:
    """Make the schema, or migrate it to this version, within the caller's transaction."""
    db.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATING,))
    db.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    db.execute(sql.SQL("SET LOCAL search_path = {}, pg_temp").format(sql.Identifier(schema)))
    found = versions(db)
    if found is not None:
        # All at once, and in the order in which nodes read them: else they could deadlock it.
        db.execute("LOCK TABLE node, beat IN ACCESS EXCLUSIVE MODE")
    for statements in MIGRATIONS[0 if found is None else found[0] :]:
        for statement in statements:
            db.execute(statement.replace("SCHEMA.", f"{schema}.").encode())
    db.execute(
        "INSERT INTO schema (one, version, oldest_writer) VALUES (true, %s, %s)"
        " ON CONFLICT (one) DO UPDATE SET version = excluded.version,"
        " oldest_writer = excluded.oldest_writer",
        (len(MIGRATIONS), OLDEST_WRITERS[-1]),
    )


def grant(db: Database, schema: str, role: str) -> None:
    """Let a role read and write rows of the schema, and nothing else."""
    for statement in (
        "GRANT USAGE ON SCHEMA {schema} TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
        "REVOKE INSERT, UPDATE, DELETE ON {schema}.schema FROM {role}",
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role}",
        # Tables of later versions, which the same owner makes.
        """ALTER DEFAULT PRIVILEGES IN SCHEMA {schema}
            GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role}""",
    ):
        names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
        db.execute(sql.SQL(statement).format(**names))
