"""Many agents that are slow: each of many sessions has a job that emits an event now and then."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench.client import Client, arrivals
from bench.figures import Extent, Figure, percentiles, stopwatch
from bench.peers import Server

LOADS: Final = ((50, 20), (200, 20), (500, 50))
MORE_LOADS: Final = ((50, 50), (200, 50), (500, 20))
"""Sessions, and the milliseconds between two events of each."""
SECONDS: Final = 10.0
_LEAD: Final = 1.0
_LEAD_PER_SESSION: Final = 0.005
"""Seconds until the first event, by which all jobs have been accepted."""
_SENT: Final = b'"sent '
_TIMES: Final = len(f"{0:020.9f} due {0:020.9f}")


def tokens(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure events delivered per second, what they cost, and how late they are."""
    loads = (*LOADS, *MORE_LOADS) if extent.complete else LOADS
    figures: list[Figure] = []
    for sessions, milliseconds in loads:
        if extent.crowds(sessions):
            figures += _deliver(server, sessions, milliseconds, extent)
    return figures


def _deliver(server: Server, sessions: int, milliseconds: int, extent: Extent) -> Sequence[Figure]:
    interval = milliseconds / 1000
    events = extent.of(SECONDS / interval)
    phases = random.Random(sessions)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(Client(server.url, token=server.principal(number)))
            for number in range(sessions)
        ]
        begin = time.monotonic() + _LEAD + _LEAD_PER_SESSION * sessions
        for client in clients:
            first = begin + phases.uniform(0, interval)
            client.submit("ticker", {"n": events, "interval": interval, "begin": first})
        for client in clients:
            client.expect("job.accepted")
        with stopwatch(server) as watch:
            waits = _receive(clients, events)
    count = sessions * events
    row = f"tokens, {sessions} sessions, each {milliseconds} ms"
    rate = count / waits.seconds
    return [
        Figure(f"{row}: delivered", "events/s", rate, client_busy=watch.busy),
        watch.cost(f"{row}: server's time for 1,000", count, per=1000),
        *percentiles(f"{row}: after emission", waits.since_emitted, watch.busy),
        *percentiles(f"{row}: after due", waits.since_due, watch.busy),
    ]


class Waits:
    """How long each event took, since its agent emitted it, and since its agent should have."""

    def __init__(self) -> None:
        self.since_emitted: list[float] = []
        self.since_due: list[float] = []
        self._began = self._ended = 0.0

    @property
    def seconds(self) -> float:
        """The time from the first event to the last one."""
        return self._ended - self._began

    def add(self, event: bytes, at: int, now: float) -> None:
        """Count an event, whose times stand at this place in the frame."""
        sent, _, due = event[at : at + _TIMES].split()
        self.since_emitted.append(now - float(sent))
        self.since_due.append(now - float(due))
        self._began = self._began or now
        self._ended = now


def _receive(clients: Sequence[Client], events: int) -> Waits:
    """Receive all events and results."""
    waits = Waits()
    results = 0
    for _, frames in arrivals(clients):
        now = time.monotonic()
        for frame in frames:
            at = frame.find(_SENT)
            if at >= 0:
                waits.add(frame, at + len(_SENT), now)
            results += b'"job.result"' in frame
        if results == len(clients):
            break
    if len(waits.since_due) != events * len(clients):
        raise RuntimeError(f"{len(waits.since_due)} events of {events} in {len(clients)} sessions")
    return waits
