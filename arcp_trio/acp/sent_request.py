"""A request of this side, from being sent until its answer has been delivered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import trio

from arcp_trio.acp.errors import AcpFailure, AgentError
from arcp_trio.acp.jsonrpc import IncomingAnswer
from arcp_trio.wire.json import JsonValue


class SentRequest:
    """A request to the peer, until its answer has been delivered."""

    def __init__(self, id_: int, method: str, deliver: Deliver) -> None:
        self.id: Final = id_
        self.method: Final = method
        self.deliver: Final = deliver
        self.arrived: Final = trio.Event()
        """Set when the reader meets the answer."""
        self.settled: Final = trio.Event()
        """Set when everything that came before the answer has been consumed."""
        self._result: JsonValue = None
        self._failure: AcpFailure | None = None

    def meet(self, answer: IncomingAnswer) -> None:
        """Keep the answer, which has yet to be delivered."""
        self._result = answer.result
        if answer.error is not None:
            self._failure = AgentError(answer.error.code, answer.error.message, answer.error.data)
        self.arrived.set()

    def lose(self, failure: AcpFailure) -> None:
        """Keep a failure in place of the answer, which will not come."""
        self._failure = failure
        self.arrived.set()

    def result(self) -> JsonValue:
        """Return the result, or raise the error that was answered instead."""
        if self._failure is not None:
            raise self._failure
        return self._result


Deliver: TypeAlias = Callable[[SentRequest], Awaitable[None]]
"""What the reader calls with a request whose answer it has met."""


async def settle(sent: SentRequest) -> None:
    """Deliver an answer at once."""
    sent.settled.set()
