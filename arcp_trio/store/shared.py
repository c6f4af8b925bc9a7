"""What a store has besides if several runtimes use it at once."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Shared(ABC):
    """The side of a store by which a node knows of the others."""

    @property
    @abstractmethod
    def node(self) -> int:
        """The number of this node; no other start of any runtime has ever had it."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of this node; of all nodes that are not gone, it alone has it."""
