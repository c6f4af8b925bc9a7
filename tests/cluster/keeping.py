"""Whatever the database was ever given: rows are kept when they are replaced, or deleted."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Final

import psycopg

_KEEP: Final = """
    CREATE TABLE kept (name text, values jsonb);
    CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.kept VALUES (TG_TABLE_NAME, to_jsonb(NEW));
        RETURN NULL;
    END $$"""


def keep_everything(database: str) -> None:
    """Have the database keep each row that it is given from now on; nodes may be at work."""
    with psycopg.connect(database, autocommit=True) as db:  # one lock at a time
        db.execute(_KEEP)
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'arcp'").fetchall()
        for (table,) in tables:
            db.execute(
                f"CREATE TRIGGER keep AFTER INSERT OR UPDATE ON arcp.{table}"
                " FOR EACH ROW EXECUTE FUNCTION public.keep()".encode()
            )


def kept(database: str, table: str = "%") -> list[dict[str, str]]:
    """Return each row that the database was given, also if it is gone; bytes as text."""
    with psycopg.connect(database) as db:
        rows = db.execute("SELECT values FROM kept WHERE name LIKE %s", (table,)).fetchall()
    return [{name: _readable(str(value)) for name, value in row.items()} for (row,) in rows]


def _readable(value: str) -> str:
    return bytes.fromhex(value[2:]).decode("latin-1") if value.startswith("\\x") else value


def spellings(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as base64 has it, wherever it begins."""
    yield secret
    for skipped in range(3):
        encoded = b64encode(bytes(skipped) + secret.encode())
        yield encoded[4 : len(encoded) // 4 * 4 - 4].decode()


def check_secrecy(database: str, *secrets: str, found: str) -> None:
    """Check that no row has ever had a secret, although rows had `found`."""
    text = " ".join(value for row in kept(database) for value in row.values())
    assert found in text, "what is stored is found"
    for secret in secrets:
        for spelling in spellings(secret):
            assert spelling not in text
