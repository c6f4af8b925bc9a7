"""Visits: clients that connect, do little or nothing, and leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Final

from bench.client import Client
from bench.figures import Extent, Figure, stopwatch
from bench.peers import Server
from bench.websocket import WebSocket

VISITS: Final = 5_000
AT_ONCE: Final = (1, 16, 64)
MOST_PER_TOKEN: Final = 10
"""So many clients are far from any limit on one principal's sessions."""

Visit = Callable[[str, str], None]
"""What a client does, given the URL and a token."""


def handshakes(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure upgrades per second, and sessions that are opened and closed."""
    return [
        *_visits(server, "WebSocket upgrade", upgrade, 16, extent),
        *_visits(server, "connect, hello, bye", hello, 16, extent),
    ]


def churn(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure sessions per second that run one short job each."""
    figures: list[Figure] = []
    for at_once in extent.crowds(*AT_ONCE):
        figures += _visits(server, "connect, hello, job, bye", run_job, at_once, extent)
    return figures


def upgrade(url: str, _token: str) -> None:
    """Connect, and leave."""
    with WebSocket(url):
        pass


def hello(url: str, token: str) -> None:
    """Open a session, and close it."""
    with Client(url, token=token) as client:
        client.bye()


def run_job(url: str, token: str) -> None:
    """Open a session, run a job that ends at once, and close the session."""
    with Client(url, token=token) as client:
        client.submit("echo", "something")
        while b'"job.result"' not in client.receive():
            pass
        client.bye()


def _visits(
    server: Server, name: str, visit: Visit, at_once: int, extent: Extent
) -> Sequence[Figure]:
    times = max(1, extent.of(VISITS) // at_once)
    tokens = [server.principal(number // MOST_PER_TOKEN) for number in range(at_once)]

    def come_and_go(token: str, times: int) -> None:
        for _ in range(times):
            visit(server.url, token)

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(come_and_go, tokens, repeat(1)))  # warms up
        with stopwatch(server) as watch:
            list(threads.map(come_and_go, tokens, repeat(times)))
    row = f"{name}, {at_once} at once"
    count = times * at_once
    return [watch.rate(row, "/s", count), watch.cost(f"{row}: server's time for each", count)]
