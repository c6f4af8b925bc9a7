"""Two nodes, a job with credentials at one of them, and whatever the database is ever given."""

from __future__ import annotations

import sys
from base64 import b64encode
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import psycopg
import pytest
import trio

from arcp_trio import Agents, JobContext, Json, Limits, Policy
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import WireRecorder
from tests.cluster.side_by_side import LIMITS, NodeHere, clients_of, runtime_over
from tests.credentials.upstream import Upstream

SECONDS: Final = 60

_KEEP: Final = """
    CREATE TABLE kept (name text, values jsonb);
    CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO public.kept VALUES (TG_TABLE_NAME, to_jsonb(NEW));
        RETURN NULL;
    END $$"""


class Stage:
    """The nodes, of which both run `rotator`, and where the credentials come from."""

    def __init__(self, database: str) -> None:
        self.database = database
        self.upstream = Upstream()
        self.agents = Agents()
        self.agents.agent("rotator")(self._rotate)
        self.may_rotate = trio.Event()
        self.here: NodeHere
        self.there: NodeHere

    async def _rotate(self, job: JobContext) -> Json:
        """Log a line before and after a rotation, then sleep."""
        await job.log("before")
        await self.may_rotate.wait()
        await job.rotate(job.credentials[0].id)
        await job.log("after")
        await trio.sleep_forever()

    def kept(self, table: str = "%") -> list[dict[str, str]]:
        """Return each row that the database was ever given, also if it is gone; bytes as text."""
        with psycopg.connect(self.database) as db:
            rows = db.execute("SELECT values FROM kept WHERE name LIKE %s", (table,)).fetchall()
        return [{name: _readable(str(value)) for name, value in row.items()} for (row,) in rows]

    def commands(self) -> list[dict[str, str]]:
        """Return the commands to reveal something, each as it was asked and as it was answered."""
        return [row for row in self.kept("command") if row["kind"] == "reveal"]


def _readable(value: str) -> str:
    return bytes.fromhex(value[2:]).decode("latin-1") if value.startswith("\\x") else value


def spellings(secret: str) -> Iterator[str]:
    """Yield a secret as it is, and as base64 has it, wherever it begins."""
    yield secret
    for skipped in range(3):
        encoded = b64encode(bytes(skipped) + secret.encode())
        yield encoded[4 : len(encoded) // 4 * 4 - 4].decode()


def without_cryptography(patch: pytest.MonkeyPatch) -> None:
    """Have `cryptography` not be installed, for whatever is imported from now on."""
    ours = [f"arcp_trio.runtime.cluster.{name}" for name in ("revealing", "sealing")]
    for name in [*sys.modules, "cryptography"]:
        if name.partition(".")[0] == "cryptography":
            patch.setitem(sys.modules, name, None)
        elif name in ours:
            patch.delitem(sys.modules, name)


@asynccontextmanager
async def revealing_nodes(
    database: str,
    *,
    lacking: tuple[str, ...] = (),
    policy: Policy | None = None,
    limits: Limits = LIMITS,
) -> AsyncGenerator[Stage]:
    """Run two nodes for the time of a test; those in `lacking` are without `cryptography`."""
    stage, recorder = Stage(database), WireRecorder()
    await trio.to_thread.run_sync(make_schema, database, None)
    await trio.to_thread.run_sync(_keep_everything, database)
    runtimes = [
        runtime_over(
            database, name, stage.agents, policy=policy, limits=limits, provisioner=stage.upstream
        )
        for name in ("here", "there")
    ]
    (first, first_store), (second, second_store) = runtimes
    with trio.fail_after(SECONDS), pytest.MonkeyPatch.context() as patch:
        if "here" in lacking:
            without_cryptography(patch)
        async with first, clients_of(first, first_store, recorder) as stage.here:
            patch.undo()
            if "there" in lacking:
                without_cryptography(patch)
            async with second, clients_of(second, second_store, recorder) as stage.there:
                patch.undo()
                yield stage


def _keep_everything(database: str) -> None:
    with psycopg.connect(database) as db:
        db.execute(_KEEP)
        tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'arcp'").fetchall()
        for (table,) in tables:
            db.execute(
                f"CREATE TRIGGER keep AFTER INSERT OR UPDATE ON arcp.{table}"
                " FOR EACH ROW EXECUTE FUNCTION public.keep()".encode()
            )
