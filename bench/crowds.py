"""Many sessions: the cost of opening one, and of keeping idle ones."""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from bench.client import Client
from bench.figures import Figure, stopwatch
from bench.peers import PEER, TOKENS, Server

HANDSHAKES: Final = 4_000
AT_ONCE: Final = 4
SESSIONS: Final = 1_000
SECONDS: Final = 31.0
"""A little more than the interval at which both runtimes ping."""
_LEAST: Final = 0.001
"""The least value that is shown, instead of zero."""


def handshakes(server: Server, share: float) -> Sequence[Figure]:
    """Measure sessions per second, from connecting to the welcome; each is dropped at once."""
    count = int(HANDSHAKES * share / AT_ONCE)
    with ThreadPoolExecutor(AT_ONCE) as threads:

        def each(count: int) -> None:
            list(threads.map(_come_and_go, [server.url] * AT_ONCE, [count] * AT_ONCE))

        each(max(1, count // 10))  # warms up
        with stopwatch() as watch:
            each(count)
    rate = count * AT_ONCE / watch.seconds
    return [Figure(f"handshakes, {AT_ONCE} at once", "/s", rate, client_busy=watch.busy)]


def _come_and_go(url: str, times: int) -> None:
    for _ in range(times):
        with Client(url):
            pass


def idle(server: Server, share: float) -> Sequence[Figure]:
    """Measure the memory and processor time of sessions that only answer pings."""
    count = int(SESSIONS * share)
    # The peer knows one principal only, and does not limit its sessions.
    tokens = cycle(TOKENS[:1] if server.side == PEER else TOKENS)
    _come_and_go(server.url, 20)  # warms up
    with ExitStack() as stack:
        resident = _resident_kib(server.pid)
        clients = [
            stack.enter_context(Client(server.url, token=token, features=("heartbeat",)))
            for token in islice(tokens, count)
        ]
        used = _processor_seconds(server.pid)
        _answer_pings(clients, SECONDS * share)
        used = _processor_seconds(server.pid) - used
        kib = max((_resident_kib(server.pid) - resident) / count, _LEAST)
    percent = max(100 * used / (SECONDS * share), _LEAST)
    row = f"{count:,} idle sessions"
    return [
        Figure(f"{row}: memory, each", "KiB", kib, less_is_better=True),
        Figure(f"{row}: processor", "%", percent, less_is_better=True),
    ]


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


def _resident_kib(pid: int) -> int:
    """Return how much memory a process has (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1])


def _processor_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process, from its CPU clock (Linux)."""
    return time.clock_gettime((~pid << 3) | 2)
