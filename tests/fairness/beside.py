"""What an attack does to bob: his delays in a runtime of its own, and the runtime's memory."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
from websockets.exceptions import WebSocketException

from tests.cli.processes import ROOT, Peer, Serve, peer, starter
from tests.fairness.attacks import ALICE

BOB = "bob-token"
ELSEWHERE = "127.0.0.2"
"""Not the address that attacks come from."""
REQUESTS = 200
"""Requests of each kind that one measurement takes."""
FLOOR_SECONDS = 0.020
MOST_SECONDS = 60
"""What one measurement may take; on a quiet machine it takes two."""
TRIES = 6
"""What else the machine does can only add to a delay, so one good measurement is enough."""
MEMORY_MIB = 600
"""What the process may have in memory at the end of any attack."""
STORED_MIB = {"subscriptions": 250}
"""What may be on disk then, by attack, if the attack has nothing done that is kept."""
MIB = 1024 * 1024
_IN_MEMORY = Path("/dev/shm")


@attrs.frozen
class Delays:
    """The delays that 99 of 100 requests of each kind stayed under, in seconds."""

    ping: float
    echo: float
    """Of a short job, from its submit to its result."""
    listing: float
    visit: float
    """Of a connection from elsewhere that resumes a session, up to its welcome."""

    def within(self, quiet: Delays) -> bool:
        """Whether these delays are below the bar: three times the quiet ones, or 20 ms."""
        return all(
            delay <= max(3 * as_quiet, FLOOR_SECONDS)
            for delay, as_quiet in zip(attrs.astuple(self), attrs.astuple(quiet), strict=True)
        )


@attrs.define
class Bob:
    """An ordinary principal, with a session at a runtime that is a process of its own."""

    served: Serve
    url: str
    peer: Peer
    folder: Path
    """Where the runtime keeps its store."""
    visited: dict[str, object] | None = None
    """What resumes the session of his last visit."""

    def delays(self) -> Delays:
        """Measure how long he waits."""
        acts = self._ping, self._echo, self._list, self._visit
        measured: list[list[float]] = [[] for _ in acts]
        end = time.monotonic() + MOST_SECONDS
        try:
            for _ in range(REQUESTS):
                for act, seconds in zip(acts, measured, strict=True):
                    seconds.append(self._delay(act))
                if time.monotonic() > end:
                    raise Noticed(f"{len(measured[0])} rounds take {MOST_SECONDS} s")
        except (TimeoutError, WebSocketException) as error:
            raise Noticed("there is no answer, or no connection") from error
        return Delays(*map(_p99, measured))

    def _ping(self) -> None:
        self.peer.send("session.ping", {"nonce": "n", "sent_at": "2026-01-01T00:00:00Z"})
        while self.peer.receive()["type"] != "session.pong":
            pass

    def _echo(self) -> None:
        self.peer.send("job.submit", {"agent": "echo", "input": 1})
        while self.peer.receive()["type"] != "job.result":
            pass

    def _list(self) -> None:
        self.peer.send("session.list_jobs", {"page_size": 5})
        while self.peer.receive()["type"] != "session.jobs":
            pass

    def _visit(self) -> None:
        with peer(self.url, BOB, self.visited, address=ELSEWHERE) as visitor:
            assert visitor.answer["type"] == "session.welcome", visitor.answer
            self.visited = visitor.resume_from(0)

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


class Noticed(AssertionError):  # noqa: N818 - a fact about the runtime
    """Bob notices an attack: he waits for too long, or the runtime takes too much."""


def assert_nothing_noticed(name: str, *, cured: bool = True) -> None:
    """Let an attack go on, and see that bob is served as before, and that the memory suffices.

    Args:
        name: the attack.
        cured: whether the runtime has what keeps the attack from being felt.

    Raises:
        Noticed: it is felt.
    """
    with served(280, without=None if cured else name) as bob:
        bob.delays()  # until everything is imported and warm
        quiet = bob.delays()
        with attacked(name, bob.url):
            time.sleep(2)
            tries = [bob.delays()]
            while not tries[-1].within(quiet) and len(tries) < TRIES:
                tries.append(bob.delays())
            held, stored = bob.memory_mib, bob.stored_mib
    if not tries[-1].within(quiet):
        raise Noticed(f"{tries} instead of {quiet}")
    if held > MEMORY_MIB or stored > STORED_MIB.get(name, math.inf):
        raise Noticed(f"{held} MiB of memory, {stored} MiB on disk")


@contextmanager
def served(lifetime: float, *, without: str | None = None, **limits: int) -> Iterator[Bob]:
    """Serve in a process for the block, with a store whose disk is memory if there is such a one.

    The time that a real disk takes depends on the machine, and on what else writes to it.

    Args:
        lifetime: the seconds after which the process is killed.
        without: the attack whose cures are taken out.
        limits: limits of the runtime.
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
            program=("arcp_trio",) if without is None else ("tests.fairness.uncured", without),
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
