"""What an engine has besides, if several runtimes can share what it stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import msgspec


class OpenCommand(msgspec.Struct, frozen=True):
    """What a node was asked to do by another one, and has not answered."""

    id: int
    """Its place among all commands of all nodes."""
    kind: str
    about: str
    """The id of the job or of the session that it is about."""
    body: bytes


class Commands(ABC):
    """What the nodes ask of each other, because only the node of a job or a session decides it.

    `AskNode` asks, `AnswerNode` answers, and `DropAnswers` deletes what was answered.
    """

    @abstractmethod
    async def open_commands(self) -> Sequence[OpenCommand]:
        """Return what this node was asked and has not answered, in the order of the asking."""

    @abstractmethod
    async def answers(self) -> Mapping[int, bytes]:
        """Return the answers to what this node has asked, by the number of the command."""

    @abstractmethod
    async def submitters(self, job_id: str) -> frozenset[str]:
        """Return the sessions that may cancel a job: that submitted it, exist and are not closed.

        A job that was delegated has those of the job above it, too.
        """


class Shared(Commands):
    """What this node does and knows as one of several."""

    @property
    @abstractmethod
    def node(self) -> int:
        """The number of this node; no other start of any runtime has ever had it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of this node; of all nodes that are not gone, it alone has it."""
