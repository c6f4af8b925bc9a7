"""The servers that are measured: each a process of its own, on a free port of the loopback."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

TOKEN: Final = "bench-token"

_ROOT: Final = Path(__file__).parents[1]
_ANNOUNCEMENT: Final = "listening on "
_SECONDS_TO_END: Final = 5.0

OURS: Final = "ours"
PEER: Final = "peer"

COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    OURS: (
        *("arcp_trio", "serve", "--memory", "--port", "0"),
        *("--token", f"bench={TOKEN}", "--log-level", "error"),
    ),
    PEER: ("bench.vendor_server", TOKEN),
}
"""What `python -m` starts; it announces its URL in one line. Both keep their events in memory."""


@attrs.frozen
class Server:
    """A server that listens."""

    url: str
    pid: int


@contextmanager
def running(side: str) -> Iterator[Server]:
    """Start a fresh server of this side and end it with the block."""
    command = [sys.executable, "-m", *COMMANDS[side]]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Server(_announced_url(process), process.pid)
        finally:
            _end(process)


def _announced_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(_ANNOUNCEMENT):
        raise RuntimeError(f"the server did not start: {line!r}")
    return line.removeprefix(_ANNOUNCEMENT).strip()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
