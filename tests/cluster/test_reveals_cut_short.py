"""A node asks another one for a credential's value, and one of them fails at a message of that."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import pytest
import trio

from arcp_trio.nurseries import tasks_beside
from arcp_trio.wire.ids import new_id
from tests.cluster.client import Client
from tests.cluster.hindering import (
    Fault,
    cut_off,
    killed,
    restore,
    stopped,
    unheard,
    with_each_fault,
)
from tests.cluster.issuing_node import ISSUING
from tests.cluster.keeping import check_secrecy, keep_everything
from tests.cluster.line import Trap
from tests.cluster.nodes import Node
from tests.cluster.stage import Stage, staged
from tests.credentials.runtimes import LEASE
from tests.credentials.server import PREFIX, live_values

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

Way: TypeAlias = Callable[[Stage, Client, Node, str], Awaitable[Client]]
"""Has a client at a node be told of a job of another node, and its credential; returns it."""

NODE_SECONDS: Final = 60
"""No node is to be taken for dead here."""
SERVED_SECONDS: Final = 25
"""Within this time a client is served again: its node waits 5 for the answer (`command_seconds`),
and perhaps 15 for locks of a node that was stopped. A client that loses its node needs some to
notice that, and to have its session stolen."""
TOLD_SECONDS: Final = 40
"""Within this time of the end of a fault a client is told the value: a node that did not answer is
not asked for 10, and one that was stopped may hold locks for 15."""
TRIES: Final = 3
"""How often a value is revealed without a message before the messages count as over."""


# -- ways to be told


async def by_subscribing(stage: Stage, _owner: Client, asker: Node, job: str) -> Client:
    """Another client of the same principal subscribes to the job."""
    watcher = await stage.client(asker)
    await watcher.subscribe(job)
    return watcher


async def by_resuming(stage: Stage, owner: Client, asker: Node, job: str) -> Client:
    """The client that has submitted the job resumes its session, with everything replayed."""
    owner.replays = True
    del owner.values[job]
    with stage.cluster.balancer.only([asker.port]):
        await cut_all(stage)
        await owner.until("resume", lambda: owner.resumes)
    await owner.until(f"replay of {job}", lambda: job in owner.values)
    return owner


async def cut_all(stage: Stage) -> None:
    """Cut the connections of all clients."""
    for node in stage.cluster.nodes:
        await stage.cluster.balancer.cut(node.port)


# -- what fails


@attrs.frozen
class Case:
    """What fails, and when."""

    way: Way
    at: int
    """The message at which it fails."""
    fault: Fault
    of_asker: bool = False
    """Whether that is a message of the node that asks, and not of the one that has the job."""


async def reveal(stage: Stage, case: Case) -> bool:
    """Have a value be revealed, and something fail; return whether there was such a message."""
    home, asker, _ = stage.cluster.nodes
    failing = asker if case.of_asker else home
    owner, key = await stage.client(home), new_id()
    job = await owner.submit("holder", 100_000, key, lease_request=LEASE)
    await owner.heard(job, 1)
    assert {owner.values[job]} == live_values(stage.cluster.folder)
    home.serves = False  # a client that loses its node is told by the third one
    trap = failing.line.trap = Trap(b"reveal", case.at, partial(case.fault, failing), steps=True)
    with trio.fail_after(SERVED_SECONDS):
        client = await case.way(stage, owner, asker, job)
        failing.line.trap = None
        await served(client, f"{key} again")
    if case.of_asker:
        with trio.fail_after(TOLD_SECONDS):
            await told(stage, client, job)
    await restore(failing)
    home.serves = True
    if case.fault is unheard:
        await failing.line.cut()  # before the node gives up on an answer
    with trio.fail_after(TOLD_SECONDS):
        await told(stage, client, job)
        said = client.said(job)
        await client.heard(job, said + 1)
    await owner.cancel(job)
    for each in (owner, client):
        end = await each.end(job)
        assert end["code"] == "CANCELLED", end
        assert each.lost_sessions == 0
    assert not live_values(stage.cluster.folder)
    return trap.sprung.is_set()


async def served(client: Client, key: str) -> None:
    """Have a client submit a job, and hear it to its end: its frames go on."""
    job = await client.submit("count", [3, 0], key)
    await client.counted(job, 3)


async def told(stage: Stage, client: Client, job: str) -> None:
    """Have a client subscribe until it is told the value that is good now."""
    while {client.values.get(job)} != live_values(stage.cluster.folder):
        await client.subscribe(job)
        await trio.sleep(0.1)


async def go_through(stage: Stage, cases: Iterable[Case]) -> int:
    """Have a value be revealed for each case, until it takes fewer messages; return for how many.

    The database has no value, and no log does.
    """
    database, number = stage.cluster.database, 0
    await trio.to_thread.run_sync(keep_everything, database)
    for case in cases:
        if not await reveals(stage, case):
            break
        number += 1
    await trio.to_thread.run_sync(
        partial(check_secrecy, database, PREFIX, found='"sealed":{"node"')
    )
    assert PREFIX not in "".join(node.log for node in stage.cluster.nodes)
    return number


async def reveals(stage: Stage, case: Case) -> bool:
    """Have a value be revealed as often as it takes; return whether there was such a message."""
    for _ in range(TRIES):
        with trio.fail_after(200):
            async with tasks_beside() as clients:
                if await reveal(Stage(stage.cluster, clients), case):
                    return True
    return False


@pytest.mark.parametrize(
    "cases",
    [
        (Case(by_subscribing, 2, stopped), Case(by_resuming, 2, killed, of_asker=True)),
        (
            Case(by_resuming, 1, killed),
            Case(by_subscribing, 4, cut_off),
            Case(by_resuming, 3, cut_off, of_asker=True),
        ),
    ],
)
async def test_some_reveals_that_are_cut_short(
    cases: Sequence[Case], database: str, tmp_path: Path
) -> None:
    """Whatever fails where, the client is served meanwhile, and told the value after that."""
    async with staged(database, tmp_path, node_seconds=NODE_SECONDS, program=ISSUING) as stage:
        assert await go_through(stage, cases) == len(cases)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("way", [by_subscribing, by_resuming])
@pytest.mark.parametrize("of_asker", [False, True])
async def test_a_reveal_that_is_cut_short_at_each_message(
    way: Way, *, of_asker: bool, tmp_path: Path
) -> None:
    """The same at each message of a reveal, for all faults side by side: most of it is waiting."""

    async def at_each(stage: Stage, fault: Fault) -> int:
        cases = (Case(way, at, fault, of_asker) for at in itertools.count(1))
        return await go_through(stage, cases)

    done = await with_each_fault(tmp_path, at_each, NODE_SECONDS, ISSUING)
    assert min(done.values()) > 3, done
