"""Stores in memory that take their time, or wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from arcp_trio import MemoryStore
from arcp_trio.store.records import KeyRow
from arcp_trio.store.writes import Write


class SlowStore(MemoryStore):
    """A store that takes `seconds` for each group of writes with one of this kind."""

    def __init__(self, seconds: float = 0, kind: type[object] = object) -> None:
        super().__init__()
        self.seconds = seconds
        self._kind = kind

    async def _commit(self, writes: Sequence[Write]) -> None:
        if any(isinstance(write, self._kind) for write in writes):
            await trio.sleep(self.seconds)
        await super()._commit(writes)


class PausingStore(MemoryStore):
    """A store that commits nothing while it is paused."""

    def __init__(self) -> None:
        super().__init__()
        self._may_commit = trio.Event()
        self._may_commit.set()

    def pause(self) -> None:
        """Commit nothing until `go_on`."""
        self._may_commit = trio.Event()

    def go_on(self) -> None:
        """Commit what has come meanwhile, and from now on at once."""
        self._may_commit.set()

    async def _commit(self, writes: Sequence[Write]) -> None:
        await self._may_commit.wait()
        await super()._commit(writes)


class SlowKeys(MemoryStore):
    """A store in which the lookup of some idempotency keys takes time."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        super().__init__()
        self._seconds = seconds

    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        """Wait, and return what the key stands for."""
        await trio.sleep(self._seconds.get(key, 0))
        return await super().key(principal, key, now)
