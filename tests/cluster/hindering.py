"""What is done to a node at a message between it and the database."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from tests.cluster.line import Flow
from tests.cluster.nodes import Node

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


FAULTS: Final = (killed, stopped, cut_off, unheard, late)
