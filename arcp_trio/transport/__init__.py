"""Transports: they carry whole messages between two peers, over WebSockets or standard streams."""

from __future__ import annotations

from arcp_trio.transport.base import (
    HandshakeFailed,
    MessageTooBig,
    Transport,
    TransportClosed,
    close_forcefully,
)
from arcp_trio.transport.memory import memory_streams
from arcp_trio.transport.websocket import accept, connect

__all__ = [
    "HandshakeFailed",
    "MessageTooBig",
    "Transport",
    "TransportClosed",
    "accept",
    "close_forcefully",
    "connect",
    "memory_streams",
]
