"""Databases of any locale: texts are compared and ordered by their bytes, as by other engines."""

from __future__ import annotations

from collections.abc import Generator
from urllib.parse import urlsplit, urlunsplit

import attrs
import psycopg
import pytest
import trio
from msgspec.structs import replace

from arcp_trio import PostgresStore
from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.writes import AcceptJob
from tests.store.engines import job_row, running

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

NAMES = ["Z", "a", "B", "\u00e4", "z", "-", "A", "_"]


@pytest.fixture
def english(database: str) -> Generator[str]:
    """An empty database in which a, B and z come in the order of a dictionary."""
    parts = urlsplit(database)
    name = f"{parts.path[1:]}_english"
    with psycopg.connect(database, autocommit=True) as db:
        if db.info.server_version < 150000:
            pytest.skip("this PostgreSQL has no databases with ICU's locales")
        db.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'"
            " LOCALE_PROVIDER icu ICU_LOCALE 'en-US'".encode()
        )
        try:
            yield urlunsplit(parts._replace(path=f"/{name}"))
        finally:
            db.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def test_a_listing_in_a_database_of_another_locale(english: str) -> None:
    """Jobs of one moment are listed by the bytes of their ids, each on one page."""
    await trio.to_thread.run_sync(make_schema, english, None)
    with psycopg.connect(english) as db:
        assert db.execute("SELECT 'a' < 'B'").fetchone() == (True,), "not what is to be tested"
    with trio.fail_after(60):
        async with running(PostgresStore(english, node="n")) as store:
            for name in NAMES:
                store.put(AcceptJob(replace(job_row(name), agent=f"{name}@1"), None))
            await store.flushed()
            query, listed = JobQuery(principal="alice", limit=3), list[str]()
            while page := await store.jobs(query):
                listed += [row.job_id for row in page]
                query = attrs.evolve(query, after=(0.0, listed[-1]))
            assert listed == sorted(NAMES, key=str.encode, reverse=True)
            for name in NAMES:
                agent = JobQuery(principal="alice", agent=name, limit=10)
                assert [row.job_id for row in await store.jobs(agent)] == [name]


async def test_every_text_is_ordered_by_its_bytes(database: str) -> None:
    """No column of any version of the schema depends on the database's locale."""
    await trio.to_thread.run_sync(make_schema, database, None)
    with psycopg.connect(database) as db:
        columns = db.execute(
            "SELECT table_name, column_name, collation_name FROM information_schema.columns"
            " WHERE table_schema = 'arcp' AND data_type = 'text'"
        ).fetchall()
    assert len(columns) > 20
    assert {each for each in columns if each[2] != "C"} == set()
