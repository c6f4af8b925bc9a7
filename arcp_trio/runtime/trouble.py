"""What clients learn while the store cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arcp_trio.wire.errors import InternalError

if TYPE_CHECKING:
    from arcp_trio.runtime.core import Core

FAILED = 1011
"""The close code of a connection whose session, or whose store, has failed."""


def store_trouble() -> InternalError:
    """The answer to whatever needs the store; what is not stored is not said."""
    return InternalError("the store cannot be used at the moment")


async def mind_store(core: Core) -> None:
    """Tell whoever waits for the store that it is in trouble, until cancelled.

    The jobs wait at their next emit and go on by themselves; a client comes back and resumes.
    """
    while True:
        await core.store.troubled()
        core.sessions.tell_of_trouble()
        await core.store.recovered()
