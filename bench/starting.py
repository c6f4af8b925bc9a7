"""The time that a server takes to listen, also with many sessions in its store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any, Final

from bench.client import Client
from bench.figures import Extent, Figure, stopwatch
from bench.peers import DURABLE, TOKENS, Server

SESSIONS: Final = 10_000


def start(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure seconds from starting the process until it listens, without and with sessions."""
    figures = [_restart(server, "start, nothing stored")]
    if server.side == DURABLE:
        sessions = extent.of(SESSIONS / len(TOKENS))
        with ThreadPoolExecutor(len(TOKENS)) as threads:
            last = list(threads.map(_leave_sessions, repeat(server), TOKENS, repeat(sessions)))
        row = f"start, {sessions * len(TOKENS):,} parked sessions"
        figures.append(_restart(server, row))
        for token, resume in zip(TOKENS, last, strict=True):
            with Client(server.url, token=token, resume=resume):
                pass  # the session was found
    return figures


def _restart(server: Server, row: str) -> Figure:
    server.stop()
    with stopwatch() as watch:
        server.start()
    return Figure(row, "s", watch.seconds, less_is_better=True)


def _leave_sessions(server: Server, token: str, sessions: int) -> Mapping[str, Any]:
    """Open sessions that run one job each, and drop them; return how to resume the last one."""
    resume: Mapping[str, Any] = {}
    for _ in range(sessions):
        with Client(server.url, token=token) as client:
            client.submit("echo", "something")
            while json.loads(client.receive())["type"] != "job.result":
                pass
            resume = client.resume_from(client.seq)
    return resume
