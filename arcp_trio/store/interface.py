"""What an engine must do to be the runtime's store."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeAlias

import trio

from arcp_trio.store.job_query import JobQuery
from arcp_trio.store.memos import Memo
from arcp_trio.store.queue import RefusedIds, WriteQueue
from arcp_trio.store.records import (
    JobRow,
    KeyRow,
    NumberedTail,
    Owed,
    Recovered,
    SessionRow,
)
from arcp_trio.store.shared import Shared
from arcp_trio.store.writes import Write


class JournalTrimmed(Exception):  # noqa: N818 - an answer, not a fault
    """Entries that a session is owed were given up; it is told so, and never sent a gap."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"the journal of {job_id} no longer reaches back that far")
        self.job_id = job_id


class LogTrimmed(Exception):  # noqa: N818 - an answer, not a fault
    """A session's oldest numbers were given up before they could be sent."""

    def __init__(self) -> None:
        super().__init__("the session's log no longer reaches back that far")


Said: TypeAlias = tuple[Sequence[tuple[int, bytes]], int | None]
"""Indexes and digests of events, and the index from which to go on; None at the end."""


class Replay(Protocol):
    """A session's frames after a number, read piece by piece."""

    async def next(self, frames: int, size: int) -> Sequence[NumberedTail]:
        """Return the next frames: at most `frames`, and at most `size` bytes, but at least one.

        The result is empty at the end.

        Raises:
            JournalTrimmed: a frame's entry was given up.
            LogTrimmed: the next number is not above the session's floor.
        """
        ...


class Reads(ABC):
    """What can be read of a store."""

    @abstractmethod
    async def recover(self) -> Recovered:
        """Return what a runtime that starts has to know of what is stored."""

    @abstractmethod
    async def stored_bytes(self) -> Mapping[str, int]:
        """Return what the jobs, sessions and keys of each principal take, about.

        What was given up and only waits to be deleted does not count.
        """

    @abstractmethod
    async def session(self, session_id: str) -> SessionRow | None:
        """Return a session, with its watches."""

    @abstractmethod
    async def session_of_token(self, digest: bytes) -> str | None:
        """Return the id of the session whose newest or spare resume token has this digest."""

    @abstractmethod
    async def owner(self, job_id: str) -> str | None:
        """Return the principal of a job, running or finished, with as much work as for no job."""

    @abstractmethod
    async def job(self, job_id: str) -> JobRow | None:
        """Return a job, running or finished."""

    @abstractmethod
    async def jobs(self, query: JobQuery) -> Sequence[JobRow]:
        """Return a page of retained jobs, running or finished.

        Jobs that come and go between two pages move no other job from one page to another.
        """

    @abstractmethod
    async def index_after(self, job_id: str, seq: int) -> int | None:
        """Return the index after the last entry with a number up to `seq`; None without a job.

        The numbers are those of the session that first submitted the job; it may have acknowledged
        them, or be gone. Entries that it never numbered follow those that it had numbered. If
        the entries there were given up, return the index of the oldest entry that is left.
        """

    @abstractmethod
    async def key(self, principal: str, key: str, now: float) -> KeyRow | None:
        """Return what an idempotency key stands for, unless it has expired."""

    @abstractmethod
    async def owed(self, cursors: Mapping[str, int], entries: int, size: int) -> Sequence[Owed]:
        """Return the first entries at or after `cursors`, merged in the order of their emission.

        They are at most `entries`, and at most `size` bytes, but at least one.

        Raises:
            JournalTrimmed: a journal no longer reaches back to its cursor.
        """

    @abstractmethod
    async def memos(self, job_id: str) -> Sequence[Memo]:
        """Return what a job remembers, in the order in which it came to remember it."""

    @abstractmethod
    async def memo(self, job_id: str, key: str) -> Memo | None:
        """Return what a job remembers under one key."""

    @abstractmethod
    async def said(self, job_id: str, index: int) -> Said:
        """Return a piece of the events from `index` on that a later run of a job is not to repeat.

        They are told by their digests, also those that were given up.
        """

    @abstractmethod
    async def covers(self, session_id: str, after: int) -> bool:
        """Return whether every frame of the session after number `after` can still be replayed."""

    @abstractmethod
    def replay(self, session_id: str, after: int, top: int, log_rows: int) -> Replay:
        """Replay the frames after `after` up to `top`, with the marks of the first `log_rows` rows.

        A mark is replayed only if its row existed when the resume began.
        """


class Store(WriteQueue, Reads):
    """Stores queued writes in order, in groups, by one writer; reads see what is committed."""

    name = ""
    """What people know the engine by."""
    durable = False
    """Whether what is stored survives both the end of the process and a loss of power."""
    journal_bytes: float = math.inf
    """The most a job's journal may take in this store, whatever the runtime's limits allow."""
    most_bytes: float = math.inf
    """The same for all that is stored."""

    @property
    def outlasts_process(self) -> bool:
        """Whether what is stored survives the end of the process, however that ends."""
        return self.durable

    @property
    def shared(self) -> Shared | None:
        """What there is besides if several runtimes share the store, of which this is a node."""
        return None

    @property
    def may_refuse(self) -> bool:
        """Whether another runtime may be first with a key, or have taken a session."""
        return self.shared is not None

    def files(self) -> Sequence[str]:
        """Return the paths of the files in which everything is kept; by default, no files."""
        return ()

    # -- writing: see `WriteQueue`

    async def run(
        self,
        timed: Callable[[float], None] | None = None,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Open the store and be its one writer, until cancelled.

        Writes that were not flushed by then may not be stored.

        Args:
            timed: called after each group with the seconds it took to store it.

        Raises:
            StoreError: the store cannot be opened.
        """
        async with self._opened():
            task_status.started()
            await self.commit_groups(self._commit, timed)

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[None]:
        """Open what the engine needs, for the life of its writer; by default, nothing."""
        yield

    @abstractmethod
    async def _commit(self, writes: Sequence[Write]) -> RefusedIds:
        """Store these writes, all or none, in order; return what a shared store has refused.

        Raises:
            StoreError: it cannot be done now; the caller tries the same writes again.
        """

    # -- reading: see `Reads`

    def for_principal(self, principal: str, *, urgent: bool = False) -> Reads:  # noqa: ARG002
        """Return the same reads, done when it is the principal's turn.

        An engine that does one read at a time gives turns by principal (`Rounds`); what resumes a
        session is urgent. By default, no read waits. The store's own reads are the runtime's.
        """
        return self
