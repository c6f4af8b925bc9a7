"""What a store cannot do for a while: the log says why, however often it is tried again."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, TypeVar

import attrs
import trio

from arcp_trio.store.errors import StoreError

_T = TypeVar("_T")

RETRY_SECONDS: Final = 1.0
"""Pause between two tries of `outlast`."""

CAUSE_SECONDS: Final = 10.0
"""How long after a line with a cause there is one with another cause, at the earliest."""


@attrs.define(eq=False)
class Cause:
    """Why something fails that is tried again and again, as far as the log has said it."""

    _said: str | None = None
    _said_at: float = -math.inf

    @property
    def known(self) -> bool:
        """Whether something fails."""
        return self._said is not None

    def is_news(self, cause: str) -> bool:
        """Return whether the log is to say this cause: it is the first, or another one."""
        now = trio.current_time()
        if cause == self._said or (self.known and now < self._said_at + CAUSE_SECONDS):
            return False
        self._said, self._said_at = cause, now
        return True

    def forget(self) -> None:
        """Note that nothing fails any longer."""
        self._said = None


@attrs.define(eq=False)
class Outage:
    """A time in which something fails that is tried again and again.

    Each try is a `with` block of the same outage. A `StoreError` ends the block, and is not raised.
    """

    log: logging.Logger
    message: str
    """What cannot be done meanwhile."""
    facts: Mapping[str, object] = attrs.field(factory=dict[str, object])
    _cause: Cause = attrs.field(factory=Cause)

    async def outlast(self, act: Callable[[], Awaitable[_T]]) -> _T:
        """Call `act` until it succeeds, and return what it returns."""
        while True:
            with self:
                return await act()
            await trio.sleep(RETRY_SECONDS)

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, StoreError):
            if self._cause.is_news(str(error)):
                self.log.warning(self.message, extra={**self.facts, "error": str(error)})
            return True
        if error is None and self._cause.known:
            self.log.info("%s: over", self.message, extra=dict(self.facts))
            self._cause.forget()
        return False
