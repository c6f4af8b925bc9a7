"""What is done to a node at a message between it and the database."""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, TypeAlias

import trio

from tests.cluster.line import Flow
from tests.cluster.nodes import SERVE, Node
from tests.cluster.stage import Stage, staged
from tests.postgres import fresh_database

log = logging.getLogger(__name__)

RUN_SECONDS: Final = 7_200.0

LATE_SECONDS: Final = 0.5
"""How late a message is."""

Fault: TypeAlias = Callable[[Node, Flow], Awaitable[None]]


async def killed(node: Node, _flow: Flow) -> None:
    """Kill the node."""
    await node.kill()


async def stopped(node: Node, _flow: Flow) -> None:
    """Stop the node."""
    node.serves = False
    node.signal(signal.SIGSTOP)


async def cut_off(_node: Node, flow: Flow) -> None:
    """Cut this connection of the node."""
    await flow.cut()


async def unheard(_node: Node, flow: Flow) -> None:
    """Let nothing more arrive on this connection, in this direction."""
    await flow.swallow()


async def late(_node: Node, _flow: Flow) -> None:
    """Let this message, and what follows it on this connection, arrive late."""
    await trio.sleep(LATE_SECONDS)


async def restore(node: Node) -> None:
    """Have a node go on as if nothing had been done to it."""
    if not node.running:
        await node.start()
    elif not node.serves:
        node.signal(signal.SIGCONT)
        node.serves = True


FAULTS: Final = (killed, stopped, cut_off, unheard, late)


async def with_each_fault(
    folder: Path,
    go_through: Callable[[Stage, Fault], Awaitable[int]],
    node_seconds: float,
    program: Sequence[str] = SERVE,
) -> dict[str, int]:
    """Run a cluster for each fault, all side by side, as most of it is waiting.

    Return at how many messages each fault was done.
    """
    done: dict[str, int] = {}
    starting = trio.Lock()

    async def run(fault: Fault) -> None:
        name = fault.__name__
        files = folder / name
        files.mkdir()
        async with AsyncExitStack() as stack:
            async with starting:  # many nodes that start at once take long
                database = stack.enter_context(fresh_database())
                running = staged(
                    database,
                    files,
                    node_seconds=node_seconds,
                    seconds=RUN_SECONDS,
                    program=program,
                )
                stage = await stack.enter_async_context(running)
            done[name] = await go_through(stage, fault)
            log.info("%s at each of %d messages", name, done[name])

    async with trio.open_nursery() as nursery:
        for fault in FAULTS:
            nursery.start_soon(run, fault)
    return done
