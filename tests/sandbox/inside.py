"""Running shell scripts in a sandbox."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from attrs import field, frozen

from arcp_trio.authority.lease import Lease
from arcp_trio.reserved import Reserved
from arcp_trio.sandbox.containment import Containment
from arcp_trio.transport.starting import StartedProcess

SYSTEM = ["/proc", "/sys", "/dev"]


@frozen(kw_only=True)
class Inside:
    """A sandbox for scripts."""

    lease: Mapping[str, Sequence[str]] = field(factory=dict)
    reserved: Sequence[str] | Reserved = ()
    own: Sequence[str] = ()
    read: Sequence[str | Path] = ()
    cwd: str | Path = "/tmp"
    environment: Mapping[str, str] = field(factory=dict)

    @asynccontextmanager
    async def started(self, *command: str) -> AsyncGenerator[StartedProcess, None]:
        """Start a program in the sandbox for the length of the block."""
        containment = Containment("require", ["sh"], read=self.read)
        reserved = self.reserved
        if not isinstance(reserved, Reserved):
            reserved = Reserved([*SYSTEM, *reserved])
        start = containment.starter(Lease.read(self.lease), reserved, list(self.own))
        environment = {"PATH": "/usr/bin:/bin", **self.environment}
        process = await start(
            command, cwd=self.cwd, environment=environment, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            await process.kill()  # noqa: ASYNC102 - bounds and shields itself
            await process.close()  # noqa: ASYNC102 - does not wait

    async def run(self, script: str) -> str:
        """Run a script, and return what it says."""
        with trio.fail_after(60):
            async with self.started("sh", "-c", script) as process:
                words = b"".join([part async for part in process.stdout])
        return words.decode()
