"""A server that is killed, and a gateway that outlives it: its keys are files in a folder.

`python -m tests.credentials.server FOLDER` prints its port once it accepts connections.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import trio

from arcp_trio import (
    ArcpError,
    CredentialOrder,
    Issued,
    JobContext,
    Json,
    Runtime,
    SqliteStore,
    StaticTokens,
    serve,
)
from arcp_trio.testing.peer import TEST_TOKEN

PREFIX: Final = "sk-a-value-that-nobody-else-may-know-"
"""The beginning of every value."""


def value_of(handle: str) -> str:
    """Return the value of a key, which nobody finds in its handle."""
    return f"{PREFIX}{sha256(handle.encode()).hexdigest()}"


def live_values(folder: Path) -> set[str]:
    """Return the values of the keys that are alive."""
    return {value_of(path.name) for path in folder.glob("keys/*")}


class Gateway:
    """A gateway whose keys are files named by order and number; a file `mute` silences it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def issue(self, order: CredentialOrder) -> Sequence[Issued]:
        """Mint one key."""
        number = len(list(self._folder.glob("keys/*")))
        handle = f"{order.id}.{number}"
        (self._folder / "keys" / handle).touch()
        if (self._folder / "mute").exists():
            await trio.sleep_forever()
        return [Issued(handle=handle, value=value_of(handle), endpoint="https://gw.example/v1")]

    async def rotate(self, order: CredentialOrder, handle: str) -> Sequence[Issued]:
        """Mint another."""
        assert (self._folder / "keys" / handle).exists()
        return await self.issue(order)

    async def revoke(self, order_id: str, handle: str | None) -> None:
        """Delete one key, or all of an order."""
        for key in self._folder.glob(f"keys/{handle or order_id + '.*'}"):
            key.unlink()
        await trio.lowlevel.checkpoint()

    def explain(self, error: Exception) -> ArcpError | None:
        """Return None: this gateway has no errors of its own."""
        return None


async def main(folder: Path) -> None:
    """Serve until killed."""
    runtime = Runtime(
        auth=StaticTokens({TEST_TOKEN: "tester"}),
        store=SqliteStore(folder / "arcp.db"),
        provisioner=Gateway(folder),
    )

    @runtime.agent("sleeper")
    async def sleeper(job: JobContext) -> Json:
        """Sleep until ended; rotate when a file says so."""
        while not (folder / "rotate").exists():  # noqa: ASYNC110 - of another process
            await trio.sleep(0.01)
        await job.rotate(job.credentials[0].id)

    async with runtime, trio.open_nursery() as nursery:
        listeners = await nursery.start(serve, runtime, "127.0.0.1", 0)
        print(listeners[0].socket.getsockname()[1], flush=True)  # noqa: T201 - to the test


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
