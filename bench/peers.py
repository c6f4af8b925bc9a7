"""The servers that are measured, each a process of its own on a free port of the loopback."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

TOKENS: Final = tuple(f"bench-token-{n}" for n in range(10))
"""One token per principal. The peer knows the first; all others observe every principal's jobs."""

MEMORY: Final = "memory"
"""The project's own runtime, with its store in memory."""
DURABLE: Final = "durable"
"""The project's own runtime, with events on disk before any client gets them."""
PEER: Final = "peer"
"""The other runtime, with its events in memory."""
SIDES: Final = (MEMORY, DURABLE, PEER)
ON_DISK: Final = {
    MEMORY: "nothing",
    DURABLE: "sessions, jobs, events and numbers, in SQLite, synced before a client gets them",
    PEER: "nothing",
}
"""What each side keeps there."""

_ROOT: Final = Path(__file__).parents[1]
_ANNOUNCEMENT: Final = "listening on "
_SECONDS_TO_END: Final = 10.0


class Server:
    """A server, which can be stopped and started again."""

    url: str

    def __init__(self, side: str, folder: Path) -> None:
        self.side = side
        self.folder = folder
        """The folder of the durable side's store."""
        self._process: subprocess.Popen[str] | None = None

    @property
    def observers(self) -> Sequence[str]:
        """The tokens that may see the jobs of the first principal."""
        return TOKENS[:1] if self.side == PEER else TOKENS[1:]

    @property
    def pid(self) -> int:
        """The id of the server's process."""
        assert self._process is not None
        return self._process.pid

    def principal(self, number: int) -> str:
        """Return the token of one of many clients; the peer knows one principal only."""
        return TOKENS[0] if self.side == PEER else TOKENS[number % len(TOKENS)]

    def processor_seconds(self) -> float:
        """Return the processor time of all threads of the process, from its CPU clock (Linux)."""
        return time.clock_gettime((~self.pid << 3) | 2)

    def resident_kib(self) -> int:
        """Return how much memory the process has (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii", errors="replace")
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1])

    def start(self) -> None:
        """Start the server, and return when it listens."""
        command = [sys.executable, "-m", *self._command()]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(_ANNOUNCEMENT):
            raise RuntimeError(f"the server did not start: {line!r}")
        self.url = line.removeprefix(_ANNOUNCEMENT).strip()

    def stop(self) -> None:
        """End the server, by force if it does not end in time."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:
            process.terminate()
            try:
                process.wait(_SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                process.kill()

    def _command(self) -> tuple[str, ...]:
        """Return what `python -m` starts; it prints its URL on one line."""
        if self.side == PEER:
            return ("bench.vendor_server", TOKENS[0])
        principals = [f"--token=bench-{n}={token}" for n, token in enumerate(TOKENS)]
        principals += [f"--observer=bench-{n}" for n in range(1, len(TOKENS))]
        options = (
            "--config=bench/serve.toml",
            "--port=0",
            "--log-level=error",
            "--agents=bench.agents",
            "--demo-agents",
        )
        return ("arcp_trio", "serve", *options, *self._store(), *principals)

    def _store(self) -> tuple[str, ...]:
        """Return the options that say where the project's own runtime keeps things."""
        return ("--memory" if self.side == MEMORY else f"--data={self.folder}",)


@contextmanager
def running(side: str) -> Generator[Server]:
    """Start a fresh server of this side, and end it after the block."""
    with TemporaryDirectory(prefix="arcp-bench-") as folder:
        server = Server(side, Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()
