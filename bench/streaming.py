"""A job that emits events as fast as it can, for its submitter alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.client import Client
from bench.figures import Extent, Figure, stopwatch
from bench.peers import DURABLE, Server

EVENTS: Final = 100_000
MESSAGE_CHARACTERS: Final = 100


def one_client(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure events per second, from the submit to the result, and bytes on disk per event."""
    events = extent.of(EVENTS)
    with Client(server.url) as client:
        stream(client, events // 10)  # warms up
        with stopwatch(server) as watch:
            stream(client, events)
        numbers = client.seq
    row = "stream, 1 job to 1 client"
    figures = [
        watch.rate(row, "events/s", events),
        watch.cost(f"{row}: server's time for 1,000", events, per=1000),
    ]
    if server.side == DURABLE:
        server.stop()
        size = sum(file.stat().st_size for file in server.folder.iterdir())
        figures.append(Figure("on disk per event", "bytes", size / numbers, less_is_better=True))
    return figures


def stream(client: Client, events: int) -> None:
    """Have a job emit this many events, and receive them."""
    client.submit("chatty", {"n": events, "size": MESSAGE_CHARACTERS})
    client.expect("job.accepted")
    for _ in range(events - 1):
        client.receive()
    client.expect("job.event")
    client.expect("job.result")
