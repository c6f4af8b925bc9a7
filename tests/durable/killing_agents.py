"""The script's agents for a real server, which kills itself at the commit that is asked for."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import trio

from arcp_trio import Json, SqliteStore
from arcp_trio.store.writes import Write
from tests.durable.script import World

SPEED = 20
"""How much faster time goes in the script."""

DIE_AT = int(os.environ.get("DIE_AT", "0"))
DIE_BEHIND = "DIE_BEHIND" in os.environ
"""Die once the commit is stored, and not before."""


class Effects(World):
    """A world in which an effect is a line in a file."""

    seconds = 1 / SPEED

    async def effect(self, what: str) -> Json:
        """Have an effect after some time."""
        await trio.sleep(self.seconds)
        note(what)
        return {"did": what}


def note(what: str) -> None:
    """Add a line to the file of effects."""
    with Path(os.environ["EFFECTS"]).open("a") as file:
        file.write(f"{what}\n")


agents = Effects().agents

_commit = SqliteStore._commit
_commits = 0


async def _mortal_commit(self: SqliteStore, writes: Sequence[Write]) -> None:
    global _commits  # noqa: PLW0603 - of one process
    _commits += 1
    if _commits == DIE_AT and not DIE_BEHIND:
        os.kill(os.getpid(), signal.SIGKILL)
    await _commit(self, writes)
    if _commits == DIE_AT:
        os.kill(os.getpid(), signal.SIGKILL)


SqliteStore._commit = _mortal_commit  # type: ignore[method-assign]
