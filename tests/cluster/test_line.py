"""The line between a node and its database fails exactly where a test wants it to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import psycopg
import pytest
import trio

from arcp_trio.nurseries import tasks_beside
from tests.cluster.line import DatabaseLine, Flow, Trap

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

MARK = "the phase"
SECONDS = 60.0


def work(url: str) -> None:
    """Insert three rows, each by a transaction of its own; the second and third are the phase."""
    with psycopg.connect(url, autocommit=True) as node:
        node.execute("INSERT INTO done VALUES (1)")
        node.execute(f"INSERT INTO done VALUES (2) -- {MARK}")
        node.execute("INSERT INTO done VALUES (3)")


async def done_with(database: str, at: int, do: Callable[[Flow], object]) -> tuple[list[int], bool]:
    """Do the work over a line with a trap; return rows, and whether it failed."""
    with psycopg.connect(database) as db:
        db.execute("CREATE TABLE IF NOT EXISTS done (n int)")
        db.execute("TRUNCATE done")
    line, failed = DatabaseLine(database), False
    with trio.fail_after(SECONDS):
        async with tasks_beside() as nursery:
            await nursery.start(line.run)

            async def act(flow: Flow) -> None:
                do(flow)
                await flow.cut()

            line.trap = Trap(MARK.encode(), at, act)
            try:
                await trio.to_thread.run_sync(partial(work, line.url), abandon_on_cancel=True)
            except psycopg.OperationalError:
                failed = True
    with psycopg.connect(database) as db:
        rows = [n for (n,) in db.execute("SELECT n FROM done ORDER BY n").fetchall()]
    return rows, failed


async def test_a_cut_at_each_message_of_a_phase(database: str) -> None:
    """What was sent before the cut is done, and nothing after that, up to the end of the phase."""
    seen: list[list[int]] = []
    at = 0
    while True:
        at += 1
        rows, failed = await done_with(database, at, lambda _: None)
        if not failed:
            break
        seen.append(rows)
    assert rows == [1, 2, 3]
    assert seen[0] == [1]
    assert seen[-1] == [1, 2, 3]
    assert sorted(seen, key=len) == seen
    assert [1, 2] in seen


async def test_what_is_swallowed_never_arrives(database: str) -> None:
    """Behind a swallowed answer the node waits, although the database has done what it asked."""
    with psycopg.connect(database) as db:
        db.execute("CREATE TABLE done (n int)")
    line = DatabaseLine(database)
    with trio.fail_after(SECONDS):
        async with tasks_beside() as nursery:
            await nursery.start(line.run)
            line.trap = Trap(MARK.encode(), 2, Flow.swallow)
            over = trio.Event()

            async def node() -> None:
                with suppress(psycopg.OperationalError):
                    await trio.to_thread.run_sync(partial(work, line.url), abandon_on_cancel=True)
                over.set()

            nursery.start_soon(node)
            await line.trap.sprung.wait()
            with trio.move_on_after(0.2):
                await over.wait()
            assert not over.is_set()
            await line.cut()
            await over.wait()
    with psycopg.connect(database) as db:
        assert db.execute("SELECT n FROM done ORDER BY n").fetchall() == [(1,), (2,)]


async def test_a_shut_line_loses_nothing(database: str) -> None:
    """While the line is shut nothing arrives; once it is open, everything does."""
    with psycopg.connect(database) as db:
        db.execute("CREATE TABLE done (n int)")
    line = DatabaseLine(database)
    with trio.fail_after(SECONDS):
        async with tasks_beside() as nursery:
            await nursery.start(line.run)
            line.shut()
            over = trio.Event()

            async def node() -> None:
                await trio.to_thread.run_sync(partial(work, line.url), abandon_on_cancel=True)
                over.set()

            nursery.start_soon(node)
            await trio.sleep(0.2)
            assert not over.is_set()
            line.open()
            await over.wait()
