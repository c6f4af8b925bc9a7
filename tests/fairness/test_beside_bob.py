"""While alice attacks, bob is served as if she were not there.

Each attack is a process of its own. The bar is the delay that 99 of 100 of bob's requests stay
under: three times that of a quiet runtime, or 20 ms. What else the machine does can only add to a
delay, so the best of three measurements counts.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest

from tests.cli.processes import ROOT, Peer, Serve, peer, starter
from tests.fairness.attacks import ALICE

BOB = "bob-token"
REQUESTS = 300
"""Pings, and as many echo jobs, that one measurement takes."""
FLOOR_SECONDS = 0.020
TRIES = 3
HELD_OFF = ("silent_reader", "listings", "big_inputs", "subscriptions", "connects")
"""The attacks that bob does not notice. He does notice `one_key`, `echoes` and `fragments`: beside
them, 99 of 100 of his jobs end within 40 to 700 ms, and of his pings within 5 ms."""
MIB = 1024 * 1024
MEMORY_MIB = 600
"""What the process may have in memory at the end of any attack."""

pytestmark = [pytest.mark.alone, pytest.mark.real_tcp]


@attrs.frozen
class Delays:
    """The delays that 99 of 100 requests stayed under, in seconds."""

    ping: float
    echo: float

    def within(self, quiet: Delays) -> bool:
        """Whether these delays are below the bar."""
        return self.ping <= max(3 * quiet.ping, FLOOR_SECONDS) and (
            self.echo <= max(3 * quiet.echo, FLOOR_SECONDS)
        )


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


def measured(bob: Peer) -> Delays:
    """Return how long bob waits for pongs, and for the results of short jobs."""
    pings, echoes = [], []
    for number in range(REQUESTS):
        began = time.perf_counter()
        bob.send("session.ping", {"nonce": str(number), "sent_at": "2026-01-01T00:00:00Z"})
        while bob.receive()["type"] != "session.pong":
            pass
        pings.append(time.perf_counter() - began)
        began = time.perf_counter()
        bob.send("job.submit", {"agent": "echo", "input": number})
        while bob.receive()["type"] != "job.result":
            pass
        echoes.append(time.perf_counter() - began)
    return Delays(_p99(pings), _p99(echoes))


def _p99(delays: list[float]) -> float:
    return sorted(delays)[int(len(delays) * 0.99)]


def memory_mib(served: Serve) -> float:
    """Return how much memory a process has."""
    pages = int(Path(f"/proc/{served.process.pid}/statm").read_text().split()[1])
    return pages * 4_096 / MIB


@pytest.mark.parametrize("name", HELD_OFF)
def test_bob_notices_nothing(name: str, tmp_path: Path) -> None:
    """An attack neither delays bob's requests nor fills the memory."""
    with starter(tmp_path, lifetime=100) as start:
        served = start(
            *("serve", "--port", "0", "--data", "data"),
            *("--token", f"alice={ALICE}", "--token", f"bob={BOB}"),
        )
        url = served.url()
        with peer(url, BOB) as bob:
            measured(bob)  # until everything is imported and warm
            quiet = measured(bob)
            with attacked(name, url):
                time.sleep(2)
                under_attack = measured(bob)
                for _ in range(TRIES - 1):
                    if not under_attack.within(quiet):
                        under_attack = measured(bob)
                held = memory_mib(served)
        assert under_attack.within(quiet), (quiet, under_attack)
        assert held <= MEMORY_MIB
