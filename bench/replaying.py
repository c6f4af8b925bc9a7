"""A client that resumes its session and asks for all events again (§6.3)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from bench.client import Client
from bench.figures import Figure, stopwatch
from bench.peers import Server
from bench.streaming import EVENTS, stream

_SECONDS_TO_NOTICE: Final = 0.3
"""The peer resumes a session only after it has noticed the end of its connection."""


def replay(server: Server, share: float) -> Sequence[Figure]:
    """Measure numbered frames per second, from connecting again to the last one."""
    with Client(server.url) as client:
        stream(client, int(EVENTS * share))
        top, resume = client.seq, client.resume_from(0)
    time.sleep(_SECONDS_TO_NOTICE)
    with stopwatch() as watch, Client(server.url, resume=resume) as client:
        while client.seq < top:
            client.receive()
    row = f"replay of {top - 1:,} events"
    return [Figure(row, "frames/s", top / watch.seconds, client_busy=watch.busy)]
