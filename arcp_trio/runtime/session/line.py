"""The line in which the submits of a session are answered: in the order in which they came.

Some clients match answers to their submits by order (§7.1 has no correlation id).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from arcp_trio.runtime.session.outbox import Outbox


class Line:
    """Gives out places; a place that waits for its turn counts as an answer that is due."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._last: trio.Event | None = None
        """Set when the last place is left."""

    @property
    def is_free(self) -> bool:
        """Whether nothing waits for its turn."""
        return self._last is None or self._last.is_set()

    def take_place(self) -> Place:
        """Return the place after all others."""
        before, self._last = self._last, trio.Event()
        self._outbox.answer_due()
        return Place(self._outbox, before, self._last)


class Place:
    """One place in a line."""

    def __init__(self, outbox: Outbox, before: trio.Event | None, left: trio.Event) -> None:
        self._outbox = outbox
        self._before = before
        self._left = left

    def __enter__(self) -> None:
        """Have the place for the block, after which the next one has its turn."""

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._outbox.answer_given()

    async def turn(self) -> None:
        """Wait until every place before this one is left; if they are, there is no checkpoint."""
        if self._before is not None and not self._before.is_set():
            await self._before.wait()
