"""How a connection is closed: with which close code, at which moment."""

from __future__ import annotations

import attrs
import trio

from arcp_trio.transport.close_codes import CloseCode


@attrs.frozen
class Farewell:
    """What a connection's client is told as its socket is closed."""

    code: int
    """The WebSocket's close code."""
    reason: str
    last: bytes | None = None
    """The tail of a frame to send before the Close; no other frame follows it, not even an event
    that is due."""


class Closing:
    """Ends one connection: the farewell to close with, and the scope that cuts its tasks off."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        """The scope of everything the connection does, except its farewell."""
        self.farewell = Farewell(CloseCode.NORMAL, "")
        self.session_has_it = False
        """A session sends on the connection, and says when it is to be closed."""

    def now(self, code: int, reason: str) -> None:
        """End the connection at once: nothing is sent but the Close."""
        self.farewell = Farewell(code, reason)
        self.scope.cancel(reason=reason)

    def with_farewell(self, code: int, reason: str) -> None:
        """Set the farewell of a connection that is about to end by itself."""
        self.farewell = Farewell(code, reason)

    def within(self, seconds: float) -> None:
        """End the connection after `seconds` at the latest, as its client may not be reading."""
        self.scope.deadline = trio.current_time() + seconds
