"""The client: `connect`, sessions that survive their connections, and handles of jobs."""

from __future__ import annotations

from arcp_trio.client.client import Client, connect
from arcp_trio.client.errors import (
    BrokenResult,
    CommandFailed,
    ConnectionFailed,
    ConnectionLost,
    ConnectionRefused,
    ConnectTimedOut,
    EventsNotKept,
    NotWebSocket,
    ProtocolError,
    TlsFailed,
    WrongPath,
)
from arcp_trio.client.events import Event
from arcp_trio.client.handles import JobHandle, ObservedJob
from arcp_trio.client.listing import JobInfo

__all__ = [
    "BrokenResult",
    "Client",
    "CommandFailed",
    "ConnectTimedOut",
    "ConnectionFailed",
    "ConnectionLost",
    "ConnectionRefused",
    "Event",
    "EventsNotKept",
    "JobHandle",
    "JobInfo",
    "NotWebSocket",
    "ObservedJob",
    "ProtocolError",
    "TlsFailed",
    "WrongPath",
    "connect",
]
