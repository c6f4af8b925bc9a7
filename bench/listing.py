"""Finding jobs among many: pages of a listing (§6.6)."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

from bench.client import Client
from bench.figures import Extent, Figure
from bench.peers import PEER, Server
from bench.round_trips import run_jobs

JOBS: Final = 100_000
PAGES: Final = 50
PAGE_JOBS: Final = 100
_IN_FLIGHT: Final = 64


def listing(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure milliseconds per page: one page after another, and one that no job is on."""
    jobs = extent.of(JOBS)
    with Client(server.url, features=("list_jobs",)) as client:
        run_jobs([client], jobs, in_flight=_IN_FLIGHT)
        pages = _pages(client, min(PAGES, jobs // PAGE_JOBS))
        nothing = [_timed(client, {"filter": {"status": ["cancelled"]}})[0] for _ in range(5)]
    figures = [
        _figure(f"{PAGE_JOBS} of {jobs:,} jobs", pages),
        _figure(f"none of {jobs:,} jobs", nothing),
    ]
    if server.side != PEER:
        with Client(server.url, token=server.observers[0], features=("list_jobs",)) as client:
            pages = _pages(client, min(PAGES, jobs // PAGE_JOBS))
        figures.append(_figure(f"{PAGE_JOBS} of everybody's {jobs:,} jobs", pages))
    return figures


def _pages(client: Client, count: int) -> Sequence[float]:
    """Return the seconds that each of `count` pages took."""
    seconds: list[float] = []
    cursor: str | None = None
    for _ in range(count):
        after = {} if cursor is None else {"cursor": cursor}
        took, page = _timed(client, {"limit": PAGE_JOBS} | after)
        if len(page["jobs"]) != PAGE_JOBS:
            raise RuntimeError(f"not a full page: {len(page['jobs'])} jobs")
        seconds.append(took)
        cursor = page.get("next_cursor")
    return seconds


def _timed(client: Client, request: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    client.send("session.list_jobs", request)
    frame = client.receive()
    seconds = time.perf_counter() - began
    page: dict[str, Any] = json.loads(frame)["payload"]
    return seconds, page


def _figure(row: str, seconds: Sequence[float]) -> Figure:
    return Figure(f"{row}: p50", "ms", 1000 * statistics.median(seconds), less_is_better=True)
