"""The real server in a process of its own, killed without warning and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from arcp_trio.wire.timestamps import rfc3339

ROOT: Final = Path(__file__).parents[2]

CROWD: Final = [f"crowd{number}" for number in range(20)]
PRINCIPALS: Final = ["alice", "bob", *CROWD]

START_SECONDS: Final = 60.0
"""The bound on a start, on a machine that is busy with other things."""

KILL_SECONDS: Final = 60.0


def token_of(principal: str) -> str:
    """Return the token of a principal."""
    return f"the-token-of-{principal}"


@asynccontextmanager
async def server_over(folder: Path) -> AsyncGenerator[Server]:
    """Provide a server that the block starts and kills; none is left after it."""
    server = Server(folder)
    try:
        yield server
    finally:
        # Bounded and shielded inside.
        await server.kill()  # noqa: ASYNC102
    assert server.complaints() == ""


class Server:
    """One data folder and, while it runs, the process that uses it."""

    def __init__(self, folder: Path) -> None:
        self.port = 0
        self.launched_at = ""
        """When the last process was started, as the wire writes it."""
        self.down = True
        """Whether the server was killed: losing a connection is expected then."""
        self._folder = folder
        self._process: trio.Process

    async def launch(self) -> None:
        """Start a process, and do not wait until it listens."""
        self.launched_at = rfc3339(time.time())
        command = [sys.executable, "-m", "arcp_trio", "serve", "--agents", "tests.crash.agents"]
        options = ["--data", str(self._folder), "--port", "0", "--log-level", "warning"]
        tokens = ",".join(f"{principal}={token_of(principal)}" for principal in PRINCIPALS)
        with self._errors.open("ab") as errors:
            self._process = await trio.lowlevel.open_process(
                [*command, *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "ARCP_TOKENS": tokens},
            )
        self.down = False

    async def start(self) -> None:
        """Start a process, and wait until it listens."""
        await self.launch()
        assert self._process.stdout is not None
        line = b""
        with trio.fail_after(START_SECONDS):
            while not line.endswith(b"\n"):
                some = await self._process.stdout.receive_some()
                assert some, f"it did not start: {self.complaints()}"
                line += some
        self.port = int(line.rpartition(b":")[2].partition(b"/")[0])

    async def kill(self) -> None:
        """Kill the process as a power failure would; return when it is gone."""
        if self.down:
            return
        self.down = True
        self._process.kill()
        with trio.fail_after(KILL_SECONDS, shield=True):
            await self._process.wait()
            assert self._process.stdout is not None
            await self._process.stdout.aclose()

    @property
    def _errors(self) -> Path:
        return self._folder / "complaints.txt"

    def complaints(self) -> str:
        """Return the warnings and errors that all processes so far have logged."""
        return self._errors.read_text()
