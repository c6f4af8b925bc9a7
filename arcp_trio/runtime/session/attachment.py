"""What a session and one connection share, from the handshake to the connection's end."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

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

    The connection makes it and sends what is in it; the session fills it. Both can end the
    connection through it.
    """

    def __init__(self, closing: Closing, unsent: Unsent, dialect: Dialect) -> None:
        self.closing = closing
        self.unsent = unsent
        """Where the session's scribe puts frames for the connection's sender."""
        self.dialect = dialect
        """How the client wants its frames."""
        self.over = False
        """The connection has ended, or goes on with another session."""
        self._waits: set[trio.CancelScope] = set()
        self._joined = False
        self._replay: Replay | None = None
        self._begun = Wake()

    def join(self) -> None:
        """Note that the connection counts among its principal's."""
        self._joined = True

    def leave(self) -> bool:
        """End the attachment; return whether the connection counted, and does no longer."""
        counted, self._joined = self._joined, False
        self.over = True
        for scope in self._waits:
            scope.cancel(reason="the connection is over")
        self.closing.session_has_it = False
        return counted

    @contextmanager
    def while_it_lasts(self) -> Generator[trio.CancelScope]:
        """Cancel a block when the attachment ends."""
        with trio.CancelScope() as scope:
            if self.over:
                scope.cancel(reason="the connection is over")
            self._waits.add(scope)
            try:
                yield scope
            finally:
                self._waits.discard(scope)

    def begin(self, replay: Replay | None) -> None:
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
        self.end(Farewell(code, error.message, refusal(error)))

    def end(self, farewell: Farewell, within: float = math.inf) -> None:
        """End the connection after what is on its way, in `within` seconds at the latest.

        Only the first call counts.
        """
        if self.unsent.farewell is None:
            self.unsent.end(farewell)
            self.closing.with_farewell(farewell.code, farewell.reason)
            self.closing.within(within)
