"""A session goes from one node to another, and one of them fails at a message in between."""

from __future__ import annotations

import itertools
import signal
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, LiteralString, TypeAlias

import attrs
import psycopg
import pytest
import trio

from arcp_trio.runtime.tasks import first_of
from tests.cluster.client import Client
from tests.cluster.hindering import (
    Fault,
    cut_off,
    killed,
    late,
    restore,
    stopped,
    unheard,
    with_each_fault,
)
from tests.cluster.line import Trap
from tests.cluster.nodes import Node
from tests.cluster.stage import Stage, staged

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

Way: TypeAlias = Callable[[Stage, Node, str], AbstractAsyncContextManager[None]]
"""Has a client lose its connection to a node; when its block begins, it may connect again."""

NODE_SECONDS: Final = 60
"""No node is to be taken for dead here."""
HELD_SECONDS: Final = 30
"""How long a node that fails may hold a session up; those that fail count as alive for longer."""
TRIES: Final = 3
"""How often a session moves without a message before the messages count as over."""

_HOME: Final = """
    SELECT name FROM arcp.session LEFT JOIN arcp.node USING (node) WHERE session_id = %s"""
_RUNS_AT: Final = "SELECT name FROM arcp.job LEFT JOIN arcp.node USING (node) WHERE job_id = %s"


def home_of(database: str, session_id: str) -> str | None:
    """Return the name of the node that has a session awake."""
    return _name(database, _HOME, session_id)


def node_of(database: str, job_id: str) -> str | None:
    """Return the name of the node that has a job."""
    return _name(database, _RUNS_AT, job_id)


def _name(database: str, query: LiteralString, about: str) -> str | None:
    with psycopg.connect(database) as db:
        row = db.execute(query, (about,)).fetchone()
    assert row is not None
    name: str | None = row[0]
    return name


# -- ways to move


async def lose_clients(stage: Stage) -> None:
    """Cut the connections of all clients."""
    for node in stage.cluster.nodes:
        await stage.cluster.balancer.cut(node.port)


@asynccontextmanager
async def claimed(stage: Stage, home: Node, session_id: str) -> AsyncGenerator[None]:
    """The session is parked by then."""
    with stage.cluster.balancer.only([]):
        await lose_clients(stage)
        while home_of(stage.cluster.database, session_id) is not None:  # noqa: ASYNC110
            await trio.sleep(0.01)
    yield


@asynccontextmanager
async def released(stage: Stage, home: Node, _session_id: str) -> AsyncGenerator[None]:
    """The node has not noticed that the client is gone, and lets go of the session when asked."""
    for node in stage.cluster.nodes:
        await stage.cluster.balancer.leave(node.port)
    yield


@asynccontextmanager
async def stolen(stage: Stage, home: Node, _session_id: str) -> AsyncGenerator[None]:
    """The node stands still, and has the session stolen."""
    home.serves = False
    home.signal(signal.SIGSTOP)
    await lose_clients(stage)
    try:
        yield
    finally:
        home.signal(signal.SIGCONT)
        home.serves = True


# -- what fails


@attrs.frozen
class Case:
    """What fails, and when."""

    way: Way
    at: int
    """The message at which it fails."""
    fault: Fault
    of_home: bool = False
    """Whether that is a message of the node that has the session, and not of the one that takes it.
    """


async def move(stage: Stage, client: Client, case: Case) -> bool:
    """Have a session move, and something fail; return whether there was such a message."""
    session_id, (home, job) = client.session_id, await begin_job(stage, client, case)
    resumes = client.resumes
    taker = stage.others(home)[case.at % 2]
    failing, mark = (home, b"release") if case.of_home else (taker, session_id.encode())
    trap = failing.line.trap = Trap(mark, case.at, partial(case.fault, failing), steps=True)
    resumed = partial(resumed_since, client, resumes)
    async with case.way(stage, home, session_id):
        with stage.cluster.balancer.only([taker.port]):
            await first_of(trap.sprung.wait, resumed)
        with trio.fail_after(HELD_SECONDS):
            await resumed()
        if case.of_home:
            failing.line.trap = None
            await restore(failing)  # it has the job
    await goes_on(client, job)
    failing.line.trap = None
    await client.cancel(job)
    end = await client.end(job)
    lost = case.of_home and case.fault is killed
    assert end["code"] in ({"CANCELLED", "INTERNAL_ERROR"} if lost else {"CANCELLED"}), end
    await restore(failing)
    if case.fault is unheard:
        await failing.line.cut()  # before the node gives up on an answer
    return trap.sprung.is_set()


async def begin_job(stage: Stage, client: Client, case: Case) -> tuple[Node, str]:
    """Have a job run at the node that has the client's session; return both."""
    for number in itertools.count():
        job = await client.submit("count", [100_000, 0.02], f"{case} {client.resumes} {number}")
        await client.heard(job, 1)
        home = home_of(stage.cluster.database, client.session_id)
        if home is not None and home == node_of(stage.cluster.database, job):
            return next(node for node in stage.cluster.nodes if node.name == home), job
        await client.cancel(job)  # a late answer to an earlier resume has moved the client
    raise AssertionError


async def resumed_since(client: Client, resumes: int) -> None:
    """Wait until a client has resumed more often."""
    await client.until("resume", lambda: client.resumes > resumes)


async def goes_on(client: Client, job: str) -> None:
    """Wait until a client has heard more of a job, or its end."""
    said = client.said(job)
    await client.until(f"more of {job}", lambda: client.said(job) > said or client.has_ended(job))


async def go_through(stage: Stage, cases: Iterable[Case]) -> int:
    """Have a session move for each case, until it takes fewer messages; return for how many."""
    client, number = await stage.client(), 0
    for case in cases:
        if not await moves(stage, client, case):
            break
        number += 1
    assert client.lost_sessions == 0
    return number


async def moves(stage: Stage, client: Client, case: Case) -> bool:
    """Have a session move as often as it takes; return whether there was such a message.

    A node that is slow has its session stolen where it was to let go of it, by fewer messages.
    """
    for _ in range(TRIES):
        with trio.fail_after(100):
            if await move(stage, client, case):
                return True
    return False


async def test_some_moves_that_are_cut_short(database: str, tmp_path: Path) -> None:
    """Whatever fails where, the session goes on at some node, and its job is followed there."""
    cases = [
        Case(claimed, 6, cut_off),
        Case(released, 8, late),
        Case(released, 3, cut_off, of_home=True),
        Case(stolen, 4, stopped),
    ]
    async with staged(database, tmp_path, node_seconds=NODE_SECONDS) as stage:
        assert await go_through(stage, cases) == len(cases)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("way", "of_home"), [(claimed, False), (released, False), (released, True), (stolen, False)]
)
async def test_a_move_that_is_cut_short_at_each_message(
    way: Way, *, of_home: bool, tmp_path: Path
) -> None:
    """The same at each message of a move, for all faults side by side: most of it is waiting."""

    async def at_each(stage: Stage, fault: Fault) -> int:
        cases = (Case(way, at, fault, of_home) for at in itertools.count(1))
        return await go_through(stage, cases)

    done = await with_each_fault(tmp_path, at_each, NODE_SECONDS)
    assert min(done.values()) > 5, done
