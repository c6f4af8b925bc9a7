"""A client that resumes its session and asks for events again (§6.3)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from bench.client import Client
from bench.figures import Extent, Figure, stopwatch
from bench.peers import Server
from bench.streaming import EVENTS, stream

_SECONDS_TO_NOTICE: Final = 0.3
"""The peer resumes a session only after it has noticed the end of its connection."""


def replay(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure numbered frames per second, from connecting again to the last one."""
    client = Client(server.url)
    stream(client, extent.of(EVENTS))
    drop(client)
    with stopwatch(server) as watch:
        resumed(server, client, after=0).close()
    row = f"replay of {client.seq - 1:,} events"
    return [
        watch.rate(row, "frames/s", client.seq),
        watch.cost(f"{row}: server's time for 1,000", client.seq, per=1000),
    ]


def drop(client: Client) -> None:
    """End a connection, and wait until the server has noticed."""
    client.close()
    time.sleep(_SECONDS_TO_NOTICE)


def resumed(server: Server, client: Client, *, after: int) -> Client:
    """Return a client that goes on after this number of another one, and has received the rest."""
    again = Client(server.url, resume=client.resume_from(after))
    while again.seq < client.seq:
        again.receive()
    return again
