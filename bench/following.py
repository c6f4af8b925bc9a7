"""A session that watches few or many jobs of another node, with as many events in all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench.client import Client
from bench.figures import Extent, Figure, percentiles, stopwatch
from bench.peers import TOKENS, Server

JOBS: Final = (10, 1_000)
EVENTS: Final = 5_000
EVENTS_PER_SECOND: Final = 200
LEAD_SECONDS: Final = 1.0
SENT: Final = b'"sent '


def follow(nodes: Sequence[Server], extent: Extent) -> Sequence[Figure]:
    """Measure how late events of the first node's jobs are at the second node, and what they cost.

    All jobs together have the same number of events in a second, however many they are.
    """
    figures: list[Figure] = []
    for jobs in extent.crowds(*JOBS):
        figures += _follow(*nodes, jobs, max(jobs, extent.of(EVENTS)) // jobs)
    return figures


def _follow(here: Server, there: Server, jobs: int, each: int) -> Sequence[Figure]:
    with ExitStack() as stack:
        owners = [stack.enter_context(Client(here.url, token=token)) for token in TOKENS[1:]]
        watcher = stack.enter_context(Client(there.url, token=TOKENS[1], features=("subscribe",)))
        begin = time.monotonic() + LEAD_SECONDS + jobs / 20
        for number in range(jobs):
            owner = owners[number % len(owners)]
            due = begin + number / EVENTS_PER_SECOND
            ticks = {"n": each, "interval": jobs / EVENTS_PER_SECOND, "begin": due}
            owner.submit("ticker", ticks)
            job_id = owner.expect("job.accepted")["payload"]["job_id"]
            watcher.send("job.subscribe", {"job_id": job_id, "history": True})
            watcher.expect("job.subscribed")
        waits: list[float] = []
        with stopwatch(there) as watch:
            while len(waits) < jobs * each:
                frames = watcher.receive_some()
                now = time.monotonic()
                found = [frame.partition(SENT)[2].split()[:1] for frame in frames]
                waits += [now - float(sent[0]) for sent in found if sent]
    row = f"watch of {jobs:,} jobs at another node"
    return [
        *percentiles(f"{row}, after emission", waits),
        watch.cost(f"{row}: server's time for 1,000", jobs * each, per=1000),
    ]
