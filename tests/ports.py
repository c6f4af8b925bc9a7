"""Ports of this machine at which nobody listens."""

from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def refusing_port() -> Generator[int]:
    """Provide a port of 127.0.0.1 that refuses connections, and that no other program can get."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
