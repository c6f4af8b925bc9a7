"""Clients as users have them: each is a process of its own, of the same server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from bench.client import Client
from bench.figures import Extent, Figure, stopwatch
from bench.peers import PEER, TOKENS, Server
from bench.streaming import stream

EVENTS: Final = 60_000


def clients(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure events per second of the client's own processor time, and of a minimal client."""
    events = extent.of(EVENTS)
    with Client(server.url) as client:
        stream(client, events // 10)
        with stopwatch() as watch:
            stream(client, events)
    given = Figure("(what the server gives)", "events/s", events / watch.seconds)
    theirs = _run("bench.vendor_client", server.url, TOKENS[0], str(events))
    figures = [given]
    for way, row in (("events", "client, async for"), ("on_event", "client, on_event")):
        ours = _run("bench.receiving", server.url, TOKENS[0], str(events), way)
        figures += [_figure(row, ours), _figure(row, theirs, side=PEER)]
    return figures


def _run(*program: str) -> dict[str, float]:
    """Run a program that measures itself, and return its figures."""
    command = [sys.executable, "-m", *program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _figure(row: str, measured: dict[str, float], *, side: str | None = None) -> Figure:
    # The client's own processor time, because others may be using the processors.
    rate = measured["rate"] / measured["busy"]
    return Figure(row, "events/s", rate, side=side, client_busy=measured["busy"])
