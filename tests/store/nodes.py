"""Stores of several nodes over one database, of which the first has a session."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from arcp_trio import PostgresStore
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.records import Mark
from arcp_trio.store.shared import Shared
from arcp_trio.store.writes import AppendLog, PutSession, Write
from tests.store.engines import running, session_row

ENOUGH = 60
"""Seconds within which everything here ends by far."""


@asynccontextmanager
async def stores(database: str, count: int = 2) -> AsyncGenerator[list[PostgresStore]]:
    """Run stores of as many nodes over one empty database; the first has a session."""
    await trio.to_thread.run_sync(make_schema, database, None)
    with trio.fail_after(ENOUGH):
        async with AsyncExitStack() as stack:
            found = [
                await stack.enter_async_context(running(PostgresStore(database, node=f"n{n}")))
                for n in range(count)
            ]
            assert await stored(found[0], PutSession(session_row()))
            yield found


async def stored(store: PostgresStore, write: Write) -> bool:
    """Store a write; return whether it was not refused."""
    group = store.put(write)
    await group.committed()
    return not group.refused


def shared(store: PostgresStore) -> Shared:
    """Return what a store does as one of several."""
    assert store.shared is not None
    return store.shared


async def place(store: PostgresStore) -> int | None:
    """Return the node that has the session."""
    found = await shared(store).place("S")
    assert found is not None
    return found.node


def batch(row: int = 0) -> AppendLog:
    """Return a batch of the session's log, with a promise."""
    mark = Mark(0, row, b',"type":"promise"}')
    return AppendLog("S", row, [mark], 0, cursors={}, watched=[], ended=[])
