"""Writes that do not wait: a short frame to a peer that reads needs no turn of a task."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import trio

from arcp_trio.transport.memory import MemoryStream

WriteAtOnce: TypeAlias = Callable[[bytes], int]
"""Writes as much as fits; returns how many bytes that is, 0 also if the stream is broken."""


def writer_of(stream: trio.abc.Stream) -> WriteAtOnce | None:
    """Return what writes to a stream without waiting; None if it cannot, as with TLS."""
    if isinstance(stream, trio.SocketStream):
        return partial(_write_to_socket, stream)
    if isinstance(stream, MemoryStream):
        return stream.write_at_once
    return None


def _write_to_socket(stream: trio.SocketStream, data: bytes) -> int:
    try:
        return os.write(stream.socket.fileno(), data)  # Trio has made the socket non-blocking
    except OSError:  # it is full, or the write that follows finds out what it is
        return 0
