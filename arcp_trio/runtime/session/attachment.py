"""What a session and one connection share, from the handshake to the connection's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arcp_trio.runtime.farewell import Closing, Farewell
from arcp_trio.runtime.notices import refusal
from arcp_trio.runtime.wake import Wake

if TYPE_CHECKING:
    from arcp_trio.runtime.session.unsent import Unsent
    from arcp_trio.store.interface import Replay
    from arcp_trio.wire.dialects import Dialect
    from arcp_trio.wire.errors import ArcpError


class Attachment:
    """One connection's hold on a session.

    The connection makes it and reads it; the session fills it, and ends the connection through it.
    """

    def __init__(self, closing: Closing, unsent: Unsent, dialect: Dialect) -> None:
        self.closing = closing
        self.unsent = unsent
        """Where the session's scribe puts frames for the connection's sender."""
        self.dialect = dialect
        """How the client wants its frames."""
        self.joined = False
        """Counted among its principal's connections."""
        self.over = False
        """The connection has ended, or goes on with another session."""
        self._replay: Replay | None = None
        self._begun = Wake()

    def begin(self, replay: Replay) -> None:
        """Let the connection send: first the frames of `replay`, then those in `unsent`."""
        self._replay = replay
        self.closing.session_has_it = True
        self._begun.set()

    async def begun(self) -> Replay:
        """Wait until the scribe has attached the session, and return what is sent first."""
        while self._replay is None:
            await self._begun.wait()
        replay, self._replay = self._replay, None
        return replay

    def fail(self, error: ArcpError, code: int) -> None:
        """End the connection after what is on its way, saying why; only the first call counts."""
        if self.unsent.farewell is None:
            self.unsent.end(Farewell(code, error.message, refusal(error)))
