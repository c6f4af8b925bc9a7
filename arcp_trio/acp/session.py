"""One session with an agent, as programs see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from arcp_trio.acp.errors import Busy
from arcp_trio.acp.queue import SessionQueue
from arcp_trio.acp.turn import Turn
from arcp_trio.acp.updates import Update
from arcp_trio.wire.json import Json

Prompt: TypeAlias = str | Sequence[Mapping[str, Json]]
"""Text, or content blocks."""


class Session:
    """A conversation with an agent."""

    def __init__(self, id_: str, cwd: str, queue: SessionQueue) -> None:
        self.id: Final = id_
        """The agent's name for the session, under which it may be continued."""
        self.cwd: Final = cwd
        self._queue = queue
        self._connection = queue.surroundings.connection
        self._limits = queue.surroundings.limits

    def prompt(self, content: Prompt) -> Turn:
        """Give the agent something to do, and return the turn that begins with it.

        Args:
            content: text, or a list of content blocks.

        Raises:
            Busy: the turn before this one is not over.
            AgentGone: the agent has ended.
        """
        self._queue.check_place()
        if self._queue.turn is not None:
            raise Busy("the session's turn is not over")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        turn = Turn(self._queue, self._connection.arrivals, self._limits.cancel_seconds)
        params = {"sessionId": self.id, "prompt": blocks}
        deliver = partial(self._queue.take_stop_reason, turn=turn)
        self._connection.request("session/prompt", params, deliver)
        self._queue.turn = turn
        return turn

    def cancel(self) -> None:
        """Have the agent end what it is doing; its open permission requests are not decided."""
        self._queue.cancel()

    async def request(self, method: str, **params: Json) -> Json:
        """Send any other request about this session, and return its result.

        Raises:
            AgentError: the agent has answered with an error.
            AgentGone: the agent has ended.
            TimedOut: the agent has not answered in time.
        """
        self._queue.check_place()
        fields = {"sessionId": self.id, **params}
        sent = self._connection.request(method, fields, self._queue.take_answer)
        return await self._connection.wait(sent, self._limits.request_seconds)


UpdateHandler: TypeAlias = Callable[[Session, Update], Awaitable[object]]
"""What is called with each update of each session."""
