"""What an attack does to bob: his delays in a runtime of its own, and the runtime's memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import attrs

from tests.cli.processes import ROOT, Peer, Serve, peer, starter
from tests.fairness.attacks import ALICE

BOB = "bob-token"
REQUESTS = 300
"""Pings, and as many echo jobs, that one measurement takes."""
FLOOR_SECONDS = 0.020
MIB = 1024 * 1024
_IN_MEMORY = Path("/dev/shm")


@attrs.frozen
class Delays:
    """The delays that 99 of 100 requests stayed under, in seconds."""

    ping: float
    echo: float

    def within(self, quiet: Delays) -> bool:
        """Whether these delays are below the bar: three times the quiet ones, or 20 ms."""
        return self.ping <= max(3 * quiet.ping, FLOOR_SECONDS) and (
            self.echo <= max(3 * quiet.echo, FLOOR_SECONDS)
        )


@attrs.frozen
class Bob:
    """An ordinary principal, with a session at a runtime that is a process of its own."""

    served: Serve
    url: str
    peer: Peer
    folder: Path
    """Where the runtime keeps its store."""

    def delays(self) -> Delays:
        """Measure how long he waits for pongs, and for the results of short jobs."""
        pings, echoes = [], []
        for number in range(REQUESTS):
            pings.append(self._delay(partial(self._ping, number)))
            echoes.append(self._delay(partial(self._echo, number)))
        return Delays(_p99(pings), _p99(echoes))

    def _ping(self, number: int) -> None:
        self.peer.send("session.ping", {"nonce": str(number), "sent_at": "2026-01-01T00:00:00Z"})
        while self.peer.receive()["type"] != "session.pong":
            pass

    def _echo(self, number: int) -> None:
        self.peer.send("job.submit", {"agent": "echo", "input": number})
        while self.peer.receive()["type"] != "job.result":
            pass

    def _delay(self, act: Callable[[], None]) -> float:
        """Return how long something takes, on a machine with a processor for everybody.

        The attacker, the runtime, bob and whatever else the machine runs share its processors, but
        the time in which bob or a thread of the runtime waits for one says nothing of the runtime.
        """
        before, began = self._waited(), time.perf_counter()
        act()
        took = time.perf_counter() - began
        # A thread that has ended meanwhile is not in `after`.
        after = self._waited()
        return max(0.0, took - sum(after[each] - before.get(each, 0) for each in after))

    def _waited(self) -> dict[str, float]:
        processes = (self.served.process.pid, os.getpid())
        return {thread: s for each in processes for thread, s in _waited_for_processor(each)}

    @property
    def memory_mib(self) -> float:
        """How much memory the runtime's process has."""
        pages = int(Path(f"/proc/{self.served.process.pid}/statm").read_text().split()[1])
        return pages * 4_096 / MIB

    @property
    def stored_mib(self) -> float:
        """How much disk the store takes."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files) / MIB


def _waited_for_processor(pid: int) -> Iterator[tuple[str, float]]:
    """Return the seconds in which threads of a process could run but had no processor to run on.

    A system that does not count this has no such file, or zeros in it.
    """
    with suppress(FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                yield thread.name, int((thread / "schedstat").read_text().split()[1]) / 1e9


def _p99(delays: list[float]) -> float:
    return sorted(delays)[int(len(delays) * 0.99)]


@contextmanager
def served(lifetime: float, **limits: int) -> Iterator[Bob]:
    """Serve in a process for the block, with a store whose disk is memory if there is such a one.

    The time that a real disk takes depends on the machine, and on what else writes to it.
    """
    folder = _IN_MEMORY if _IN_MEMORY.is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        starter(Path(data), lifetime=lifetime) as start,
    ):
        config = Path(data) / "limits.toml"
        config.write_text("\n".join(["[limits]", *(f"{k} = {v}" for k, v in limits.items())]))
        process = start(
            *("serve", "--port", "0", "--data", "data", "--config", str(config)),
            *("--token", f"alice={ALICE}", "--token", f"bob={BOB}"),
        )
        url = process.url()
        with peer(url, BOB) as bob:
            yield Bob(process, url, bob, Path(data))


@contextmanager
def attacked(name: str, url: str) -> Iterator[None]:
    """Let an attack go on for the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.fairness.attacks", name, url],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        yield
        assert process.poll() is None, "the attack has ended by itself"
    finally:
        process.kill()
        with process:
            pass
