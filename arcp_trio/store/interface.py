"""What an engine must do to be the runtime's store."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import trio

from arcp_trio.store.queue import Group, WriteQueue
from arcp_trio.store.records import Entry, Frame, JobQuery, JobRow, KeyRow, Recovered, SessionRow
from arcp_trio.store.writes import Write


class JournalTrimmed(Exception):  # noqa: N818 - a fact to be told, not a fault
    """Entries have been given up: whoever needs them must be told, never sent a hole."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the journal of {job_id} no longer reaches back that far")
        self.job_id = job_id


class LogTrimmed(Exception):  # noqa: N818 - a fact to be told, not a fault
    """A session's oldest numbers were given up before they could be sent."""

    def __init__(self) -> None:
        super().__init__("the session's log no longer reaches back that far")


Owed = tuple[str, Entry]
"""One entry that a session is owed, behind the id of its job."""


class Replay(Protocol):
    """A session's frames behind a number, read piece by piece."""

    async def next(self, frames: int, size: int) -> Sequence[Frame]:
        """The next frames, at most so many and (but for one) so many bytes; empty at the end.

        Raises:
            JournalTrimmed: a frame's entry is gone.
            LogTrimmed: the next number is behind the session's floor.
        """
        ...


class Store(ABC):
    """One writer commits queued writes in order, in groups; reads see what is committed."""

    durable = False
    """Whether what is stored is lost neither with the process nor with the power."""
    journal_bytes: float = math.inf
    """What a job's journal may take here at most, whatever the runtime's limits allow."""

    def __init__(self) -> None:
        self._queue = WriteQueue()

    # -- writing

    def put(self, write: Write) -> Group:
        """Queue a write. Never waits; the place in the order is taken on return."""
        return self._queue.put(write)

    @property
    def full(self) -> bool:
        """Whether emitters should wait in `room()`."""
        return self._queue.full

    async def room(self) -> None:
        """Wait until the queue has room again."""
        await self._queue.room()

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored now, if so. What was put stays put, and is tried again."""
        return self._queue.trouble

    async def troubled(self) -> None:
        """Wait until the store is in trouble."""
        await self._queue.troubled()

    async def recovered(self) -> None:
        """Wait until the store is not in trouble any more."""
        await self._queue.recovered()

    async def flushed(self) -> None:
        """Wait until everything that was put is stored."""
        await self._queue.flushed()

    async def run(
        self,
        timed: Callable[[float], None] | None = None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Be the one writer, until cancelled; what was not flushed by then may not be stored.

        Args:
            timed: told of each group how many seconds it took to store it.

        Raises:
            StoreError: the store cannot be opened.
        """
        async with self._opened():
            task_status.started()
            await self._queue.run(self._commit, timed)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        """Around the writer's life: an engine that has something to open does it here."""
        yield

    @abstractmethod
    async def _commit(self, writes: Sequence[Write]) -> None:
        """Store these writes, all or none, in order.

        Raises:
            StoreError: it cannot be done now; the same writes will be brought again.
        """

    # -- reading

    @abstractmethod
    async def recover(self) -> Recovered:
        """What is here already, for a runtime that starts."""

    @abstractmethod
    async def session(self, session_id: str) -> SessionRow | None:
        """A session, with its watches."""

    @abstractmethod
    async def session_of_token(self, token: bytes) -> str | None:
        """The session that a resume token's digest belongs to, newest or spare."""

    @abstractmethod
    async def job(self, job_id: str) -> JobRow | None:
        """A job, running or finished."""

    @abstractmethod
    async def jobs(self, query: JobQuery) -> Sequence[JobRow]:
        """A page of retained jobs, running or finished.

        Jobs that come and go between pages do not move the others from one page to another.
        """

    @abstractmethod
    async def index_after(self, job_id: str, seq: int) -> int | None:
        """The index behind the last entry that has a number up to `seq`; None if there is no job.

        The numbers are those of the session that submitted the job first; it may have acknowledged
        them, or be gone. Entries that it never numbered come behind those that it had numbered
        before. If the entries there were given up, it is the index of the oldest that is left.
        """

    @abstractmethod
    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        """What an idempotency key stands for, unless it has expired."""

    @abstractmethod
    async def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        """The first entries at or after the cursors, merged in the order they were emitted.

        Raises:
            JournalTrimmed: a journal no longer reaches back to its cursor.
        """

    @abstractmethod
    async def covers(self, session_id: str, after: int) -> bool:
        """Whether every frame of the session behind `after` can still be replayed."""

    @abstractmethod
    def replay(self, session_id: str, after: int, top: int, log_rows: int) -> Replay:
        """Frames after `after` up to number `top`, with the marks of the first `log_rows` rows."""
