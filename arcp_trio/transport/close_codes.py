"""The codes with which this project closes a WebSocket."""

from __future__ import annotations

from enum import IntEnum


class CloseCode(IntEnum):
    """Why a WebSocket is closed (RFC 6455 §7.4.1); a peer may send any other code."""

    NORMAL = 1000
    """The session or the connection is done with."""
    GOING_AWAY = 1001
    """The runtime shuts down."""
    PROTOCOL_ERROR = 1002
    """The peer's frames break RFC 6455."""
    INVALID_TEXT = 1007
    """A text message is not UTF-8."""
    POLICY = 1008
    """The peer exceeded a limit other than the size of a message, or was refused."""
    TOO_BIG = 1009
    """A message is larger than the receiver allows."""
    FAILED = 1011
    """The runtime met an error of its own."""
    ELSEWHERE = 1012
    """The node ends, and another one goes on with the session."""
