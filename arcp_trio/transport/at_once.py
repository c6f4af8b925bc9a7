"""Writes that do not wait: a short frame to a peer that reads needs no turn of a task."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Protocol, runtime_checkable

import trio


@runtime_checkable
class WritesAtOnce(Protocol):
    """A stream that can write without waiting."""

    def write_at_once(self, data: bytes) -> int:
        """Write as much as fits, and return how many bytes that is; 0 if the stream is broken."""
        ...


def writer_of(stream: trio.abc.Stream) -> Callable[[bytes], int] | None:
    """Return what writes to a stream without waiting; None if it cannot, as with TLS."""
    if isinstance(stream, trio.SocketStream):
        return partial(_write_to_socket, stream)
    return stream.write_at_once if isinstance(stream, WritesAtOnce) else None


def _write_to_socket(stream: trio.SocketStream, data: bytes) -> int:
    try:
        return os.write(stream.socket.fileno(), data)  # Trio has made the socket non-blocking
    except OSError:  # it is full, or the write that follows finds out what it is
        return 0
