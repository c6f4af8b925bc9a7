"""What can go wrong on the client's side. What a runtime refuses has the classes of §12."""

# ruff: noqa: N818 - each is named after what happened

from __future__ import annotations

import copy

from arcp_trio.wire.errors import ArcpError


class ConnectionFailed(Exception):
    """There is no connection to the runtime, or none any more."""


class ConnectionRefused(ConnectionFailed):
    """Nobody answers at that address."""


class ConnectTimedOut(ConnectionFailed):
    """Somebody is there, but the session was not opened in time."""


class TlsFailed(ConnectionFailed):
    """The TLS handshake failed: no TLS there, or a certificate that is not trusted."""


class WrongPath(ConnectionFailed):
    """There is a server, but nothing at this path."""


class NotWebSocket(ConnectionFailed):
    """There is a server, but it does not speak WebSocket here."""


class CommandFailed(ConnectionFailed):
    """The command that was to be the runtime could not be started."""


class ConnectionLost(ConnectionFailed):
    """The connection ended, and the session cannot be taken up again."""


class ProtocolError(ConnectionFailed):
    """The runtime sent what no ARCP runtime may send."""


class BrokenResult(Exception):
    """The chunks of a streamed result do not make up a result (§8.4)."""


class EventsNotKept(Exception):
    """Events of a job were let go because nobody iterated over them; its result is not affected."""


def afresh(error: Exception) -> Exception:
    """Copy an error that more than one caller is going to raise, each with its own traceback."""
    if not isinstance(error, ArcpError | ConnectionFailed | BrokenResult | EventsNotKept):
        return error  # who knows how it is made
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh
