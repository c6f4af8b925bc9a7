"""A real server over a file, whose process kills itself at a commit, and is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

ROOT: Final = Path(__file__).parents[2]
START_SECONDS: Final = 60.0
TOKEN: Final = "the-token-of-alice"


class Server:
    """A data folder and, while it runs, the process that serves it, always at one port."""

    def __init__(self, folder: Path, agents: Sequence[str]) -> None:
        self.port = 0
        self._folder = folder
        self._agents = agents
        self._process: trio.Process | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"ws://127.0.0.1:{self.port}/arcp"

    @property
    def effects(self) -> list[str]:
        """What has been done, in order."""
        path = self._folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    async def start(self, *, die_at: int = 0, behind: bool = False) -> None:
        """Start a process, which dies at this commit, and wait until it listens."""
        command = [sys.executable, "-m", "arcp_trio", "serve", "--port", str(self.port)]
        command += self._agents
        if "--store" not in self._agents:
            command += ["--data", str(self._folder)]
        more = {"DIE_AT": str(die_at), "EFFECTS": str(self._folder / "effects")}
        if behind:
            more["DIE_BEHIND"] = "1"
        with (self._folder / "log").open("ab") as log:
            self._process = await trio.lowlevel.open_process(
                [*command, "--log-level", "warning"],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "ARCP_TOKENS": f"alice={TOKEN}", **more},
            )
        assert self._process.stdout is not None
        line = b""
        with trio.fail_after(START_SECONDS):
            while not line.endswith(b"\n"):
                some = await self._process.stdout.receive_some()
                assert some, (self._folder / "log").read_text()
                line += some
        self.port = int(line.rpartition(b":")[2].partition(b"/")[0])

    async def dead(self) -> bool:
        """Wait for the end of the process; return whether it was killed."""
        assert self._process is not None
        code = await self._process.wait()
        assert self._process.stdout is not None
        await self._process.stdout.aclose()
        return code == -signal.SIGKILL

    async def signalled(self, number: signal.Signals) -> None:
        """Send the process a signal, and wait for its end."""
        assert self._process is not None
        self._process.send_signal(number)
        with trio.fail_after(START_SECONDS, shield=True):
            await self.dead()

    @property
    def log(self) -> str:
        """Warnings and errors of all processes so far."""
        return (self._folder / "log").read_text()


@asynccontextmanager
async def server_in(folder: Path, *agents: str) -> AsyncGenerator[Server]:
    """Provide a server that the block starts; its process is gone after the block.

    `agents` are options that say what it serves, by default the agents of the script.
    """
    server = Server(folder, agents or ("--agents", "tests.durable.killing_agents"))
    try:
        yield server
    finally:
        process = server._process
        if process is not None and process.returncode is None:
            await server.signalled(signal.SIGKILL)  # noqa: ASYNC102 - it shields itself
