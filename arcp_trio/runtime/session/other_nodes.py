"""The other nodes, as a session knows them: it asks what only the node of a job decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from arcp_trio.runtime.job.commands import JobCommand, Obeyed
    from arcp_trio.wire.errors import ArcpError

Told: TypeAlias = "Callable[[Obeyed | ArcpError], None]"
"""Gets the answer to a command, in one step."""


class OtherNodes(Protocol):
    """The nodes with which this one shares its store."""

    async def ask(self, command: JobCommand, told: Told) -> None:
        """Ask the node of a job; return once `told` has the answer, or the reason for none."""
        ...

    async def hear(self) -> None:
        """Hand on every answer that is stored.

        What comes of a command may be stored with its answer, and must not be seen before it.

        Raises:
            StoreError: the answers cannot be read now.
        """
        ...
