"""Many sessions that do nothing: what it costs to keep them."""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench.client import Client
from bench.figures import Extent, Figure, stopwatch
from bench.peers import Server
from bench.visiting import hello

SESSIONS: Final = 1_000
SECONDS: Final = 31.0
"""A little more than the interval at which both runtimes ping."""
_LEAST: Final = 0.001
"""The least value that is shown, instead of zero."""


def idle(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure the memory of sessions, and their processor time while they only answer pings."""
    count = min(SESSIONS, extent.crowd)
    for _ in range(20):
        hello(server.url, server.principal(0))  # warms up
    with ExitStack() as stack:
        resident = server.resident_kib()
        clients = [
            stack.enter_context(
                Client(server.url, token=server.principal(number), features=("heartbeat",))
            )
            for number in range(count)
        ]
        kib = max((server.resident_kib() - resident) / count, _LEAST)
        row = f"{count:,} idle sessions"
        figures = [Figure(f"{row}: memory, each", "KiB", kib, less_is_better=True)]
        if extent.complete:
            with stopwatch(server) as watch:
                _answer_pings(clients, SECONDS * extent.share)
            percent = max(100 * watch.server_seconds / watch.seconds, _LEAST)
            figures.append(Figure(f"{row}: processor", "%", percent, less_is_better=True))
    return figures


def _answer_pings(clients: Sequence[Client], seconds: float) -> None:
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ, client)
        while (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                ping = key.data.expect("session.ping")["payload"]
                pong = {"ping_nonce": ping["nonce"], "received_at": ping["sent_at"]}
                key.data.send("session.pong", pong)
