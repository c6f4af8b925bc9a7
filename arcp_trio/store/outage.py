"""What a store cannot do for a while: the log says so once, however often it is tried again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Final, TypeVar

import attrs
import trio

from arcp_trio.store.errors import StoreError

_T = TypeVar("_T")

RETRY_SECONDS: Final = 1.0
"""Pause between two tries of `outlast`."""


@attrs.define(eq=False)
class Outage:
    """A time in which something fails that is tried again and again.

    Each try is a `with` block of the same outage. A `StoreError` ends the block, and is not raised.
    """

    log: logging.Logger
    message: str
    """What cannot be done meanwhile."""
    facts: Mapping[str, object] = attrs.field(factory=dict[str, object])
    _lasts: bool = False

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
            if not self._lasts:
                self.log.warning(self.message, extra={**self.facts, "error": str(error)})
            self._lasts = True
            return True
        if error is None and self._lasts:
            self.log.info("%s: over", self.message, extra=dict(self.facts))
            self._lasts = False
        return False
