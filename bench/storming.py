"""Nodes with many clients: one is killed, and they come back at the others; or one is to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

from bench.client import Client, arrivals
from bench.figures import Figure
from bench.peers import Server

AT_ONCE: Final = 64
"""Clients that shake hands at the same time."""


def storm(nodes: Sequence[Server], kill: Callable[[], None], count: int) -> Figure:
    """Measure the time from the kill of the first node until all of its clients are back.

    Args:
        nodes: the first of them is killed; its clients come back at the others by turns.
        kill: kills it.
        count: how many clients it has.
    """
    dying, *others = nodes
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as threads:

        def come_back(number: int) -> Client:
            clients[number].close()
            resume = clients[number].resume_from(0)
            node = others[number % len(others)]
            return Client(node.url, token=node.principal(number), resume=resume)

        clients = _crowd(dying, count, stack, threads)
        kill()
        began = time.perf_counter()
        for client in threads.map(come_back, range(count)):
            stack.enter_context(client)
        seconds = time.perf_counter() - began
    row = f"a node with {count:,} sessions is killed: all are back at {len(others)} others"
    return Figure(row, "s", seconds, less_is_better=True)


def leave(node: Server, count: int) -> Figure:
    """Measure the time that a node with `count` clients takes to end in order."""
    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as threads:
        clients = _crowd(node, count, stack, threads)
        began = time.perf_counter()
        end = threads.submit(node.stop)
        left = len(clients)
        for client, _ in arrivals(clients):
            left -= client.closed
            if not left:
                break
        end.result()
        seconds = time.perf_counter() - began
    row = f"a node with {count:,} sessions is told to end: it has let go of them"
    return Figure(row, "s", seconds, less_is_better=True)


def _crowd(node: Server, count: int, stack: ExitStack, threads: ThreadPoolExecutor) -> list[Client]:
    def come(number: int) -> Client:
        return Client(node.url, token=node.principal(number))

    clients = list(threads.map(come, range(count)))
    for client in clients:
        stack.enter_context(client)
    return clients
