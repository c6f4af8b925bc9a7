"""A large result that is streamed to its submitter (§8.4)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from bench.client import Client
from bench.figures import Extent, Figure, stopwatch
from bench.peers import Server

RESULT_MB: Final = 30
_MB: Final = 1_000_000


def streamed_result(server: Server, extent: Extent) -> Sequence[Figure]:
    """Measure megabytes of the result per second, from the submit to the terminal."""
    size = extent.of(RESULT_MB * _MB)
    with Client(server.url, features=("result_chunk",)) as client:
        _stream(client, size // 10)  # warms up
        with stopwatch() as watch:
            _stream(client, size)
    row = f"streamed result of {size / _MB:g} MB"
    return [watch.rate(row, "MB/s", size / _MB)]


def _stream(client: Client, size: int) -> None:
    """Have a job stream a result of `size` bytes, and receive all of it."""
    client.submit("report", {"size": size})
    received = 0
    while b'"result_size"' not in (frame := client.receive()):
        received += len(frame)
    if json.loads(frame)["payload"]["result_size"] != size or received < size:
        raise RuntimeError(f"not the result: {frame!r}")
