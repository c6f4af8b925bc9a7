"""A job whose events go to many sessions: its submitter, and subscribers (§7.6)."""

from __future__ import annotations

import selectors
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from typing import Final

from bench.client import Client
from bench.figures import Figure, stopwatch
from bench.peers import TOKENS, Server
from bench.streaming import MESSAGE_CHARACTERS

SUBSCRIBERS: Final = (1, 10, 100)
DELIVERIES: Final = 300_000
"""How many events are received in one measurement, by all sessions together."""


def fan_out(server: Server, share: float) -> Sequence[Figure]:
    """Measure events per second, received by all together, from the start to the last event."""
    return [_deliver(server, count, int(DELIVERIES * share)) for count in SUBSCRIBERS]


def _deliver(server: Server, subscribers: int, deliveries: int) -> Figure:
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
        with stopwatch() as watch:
            starter.submit("go", None)
            _receive((owner, *others), events + 1)
    rate = events * (subscribers + 1) / watch.seconds
    name = f"1 job to {subscribers} subscriber{'s' if subscribers > 1 else ''}"
    return Figure(name, "deliveries/s", rate, client_busy=watch.busy)


def _receive(clients: Sequence[Client], top: int) -> None:
    """Receive on all clients until each has this number."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ, client)
        while selector.get_map():
            for key, _ in selector.select():
                key.data.receive_some()
                if key.data.seq == top:
                    selector.unregister(key.data)
