"""The nodes that share a store: which there are, which are alive, what a dead one leaves."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import msgspec

from arcp_trio.store.records import Recovered


class NodeState(enum.StrEnum):
    """The state of a node; one that is gone stays so, and stores nothing more."""

    UP = "up"
    DRAINING = "draining"
    GONE = "gone"


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is stored."""

    node: int
    """Its number, which no other start of any runtime ever has."""
    name: str
    state: NodeState
    version: str
    """The version of its program."""
    beats: int
    """How many signs of life it has given."""
    since: float
    """When its state changed last, in seconds since 1970 of the store's clock."""


class RollCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a node has seen of all nodes right after it has given a sign of life."""

    began: float
    ended: float
    """On the monotonic clock of this machine: when the beat was sent, and when all was seen."""
    nodes: Sequence[NodeRow]
    """All that are not gone, this one included."""
    ahead: float
    """How many seconds the store's clock is ahead of this machine's."""


Seen: TypeAlias = Callable[[RollCall | None], None]
"""Is told in the loop what a beat has seen; None stands for a beat that did not go through."""


class Nodes(ABC):
    """A node among those with which it shares the store."""

    resume_window_seconds: float = 600
    """How long a session can be resumed whose node has died."""

    @property
    @abstractmethod
    def node(self) -> int:
        """The number of this node; no other start of any runtime has ever had it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of this node; of all nodes that are not gone, it alone has it."""

    @abstractmethod
    async def beat(self, seconds: float, seen: Seen, over: Callable[[], None]) -> None:
        """Give a sign of life every `seconds`, until cancelled.

        A thread does it, so that a node with a busy loop is not taken for dead. It stops if the
        loop stands still for a minute.

        Args:
            seconds: from beat to beat.
            seen: is told what each beat has seen.
            over: is called, in the thread, as soon as it is known that this node is gone.

        Raises:
            Fenced: this node is gone.
        """

    @abstractmethod
    async def adopt(self, dead: NodeRow) -> Recovered | None:
        """Take over what another node has left, which is gone from then on.

        Its sessions are parked; its jobs, its credentials and what it was asked are this node's.
        None if another node has adopted it, or if it has given another sign of life.

        Raises:
            Fenced: this node is gone.
            StoreError: the store cannot do it now.
        """

    @abstractmethod
    async def leave_jobs(self, job_ids: Collection[str]) -> None:
        """Have durable jobs of this node wait for one that has their agents.

        Everything that this node has written of them has to be stored.
        """

    @abstractmethod
    async def take_jobs(
        self, agents: Sequence[str], most: int, orphan_seconds: float
    ) -> Recovered | None:
        """Take jobs that wait, with those below them; None if there is nothing to take.

        Args:
            agents: what this node has, each as `name@version`.
            most: how many to take, without those below them.
            orphan_seconds: jobs that have waited for longer are taken whatever their agents are,
                and so are those that somebody wants to end.
        """

    @abstractmethod
    async def nodes(self) -> Sequence[NodeRow]:
        """Return all nodes, those that are gone last, as long as the store keeps them."""

    @abstractmethod
    async def drain(self) -> None:
        """Let the other nodes know that this one is about to end."""

    @abstractmethod
    async def leave(self) -> None:
        """Be gone, unless there are jobs or credentials that another node has to adopt."""
