"""A job whose events go to many sessions: its submitter, and subscribers (§7.6)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from typing import Final

from bench.client import Client, arrivals
from bench.figures import Extent, Figure, stopwatch
from bench.peers import TOKENS, Server
from bench.streaming import MESSAGE_CHARACTERS

SUBSCRIBERS: Final = (1, 10, 100)
DELIVERIES: Final = 300_000
"""How many events are received in one measurement, by all sessions together."""


def fan_out(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure events per second, received by all together, from the start to the last event."""
    figures: list[Figure] = []
    for count in SUBSCRIBERS:
        figures += _deliver(server, count, extent.of(DELIVERIES))
    return figures


def _deliver(server: Server, subscribers: int, deliveries: int) -> Sequence[Figure]:
    events = deliveries // (subscribers + 1)
    tokens = [TOKENS[0], TOKENS[0], *islice(cycle(server.observers), subscribers)]
    with ExitStack() as stack:
        starter, owner, *others = [
            stack.enter_context(Client(server.url, token=token, features=("subscribe",)))
            for token in tokens
        ]
        owner.submit("announcer", {"n": events, "size": MESSAGE_CHARACTERS})
        job_id = owner.expect("job.accepted")["payload"]["job_id"]
        for other in others:
            other.send("job.subscribe", {"job_id": job_id, "history": False})
            other.expect("job.subscribed")
        with stopwatch(server) as watch:
            starter.submit("go", None)
            _receive((owner, *others), events + 1)
    deliveries = events * (subscribers + 1)
    row = f"1 job to {subscribers} subscriber{'s' if subscribers > 1 else ''}"
    return [
        watch.rate(row, "deliveries/s", deliveries),
        watch.cost(f"{row}: server's time for 1,000", deliveries, per=1000),
    ]


def _receive(clients: Sequence[Client], top: int) -> None:
    """Receive on all clients until each has this number."""
    waiting = len(clients)
    for client, frames in arrivals(clients):
        waiting -= bool(frames) and client.seq == top
        if not waiting:
            break
