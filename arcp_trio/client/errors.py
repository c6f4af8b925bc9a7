"""Errors on the client's side. Refusals by the runtime have the classes of §12 instead."""

# ruff: noqa: N818 - each class is named after what happened

from __future__ import annotations

import copy

from arcp_trio.wire.errors import ArcpError


class ConnectionFailed(Exception):
    """A connection to the runtime cannot be opened, or is lost for good."""


class ConnectionRefused(ConnectionFailed):
    """Nothing accepts connections at that address."""


class ConnectTimedOut(ConnectionFailed):
    """The session was not opened in time."""


class TlsFailed(ConnectionFailed):
    """The TLS handshake failed: the server has no TLS, or a certificate that is not trusted."""


class WrongPath(ConnectionFailed):
    """The server has no WebSocket at this path."""


class NotWebSocket(ConnectionFailed):
    """The server does not speak WebSocket here."""


class CommandFailed(ConnectionFailed):
    """The command that should run the runtime could not be started."""


class ConnectionLost(ConnectionFailed):
    """The connection ended, and the session cannot be resumed."""


class ProtocolError(ConnectionFailed):
    """The runtime sent something that ARCP does not allow."""


class BrokenResult(Exception):
    """The chunks of a streamed result do not make up a result (§8.4)."""


class EventsNotKept(Exception):
    """Events are no longer kept, and cannot be had from the runtime again; the result is kept."""


class Gap(Exception):
    """Numbered frames are missing (§8.3). A resume brings them, so programs do not see this."""


class Silence(Exception):
    """For two heartbeat intervals nothing was received, or nothing could be sent (§6.4).

    The client then opens another connection, so programs see this only as a cause.
    """


def afresh(error: Exception) -> Exception:
    """Copy an error that several callers may raise, so that each has a traceback of its own."""
    if not isinstance(error, ArcpError | ConnectionFailed | BrokenResult | EventsNotKept):
        return error  # the constructor of a foreign class may not allow a copy
    fresh = copy.copy(error)
    fresh.__cause__ = error.__cause__
    return fresh
