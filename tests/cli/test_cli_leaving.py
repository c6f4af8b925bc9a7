"""`serve` ends in time, whatever its agents do, and at once at the second signal."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.clients import Commands
from tests.cli.processes import END_SECONDS, ROOT, Starter, peer
from tests.cli.stopping import AGENTS, serve_mine
from tests.cli.terminals import terminal

pytestmark = pytest.mark.real_tcp


@pytest.fixture(autouse=True)
def _agents(tmp_path: Path) -> None:
    (tmp_path / "my_agents.py").write_text(AGENTS, encoding="utf-8")


@pytest.mark.parametrize("agent", ["sitting", "blocking", "straggling"])
def test_no_agent_holds_the_end_up(start: Starter, agent: str) -> None:
    """`serve` ends with 0 within 5 s, although an agent blocks a thread or the event loop."""
    served = serve_mine(start)
    with peer(served.url(), "x") as session:
        session.send("job.submit", {"agent": agent, "input": None})
        served.line("at work")
        asked = time.monotonic()
        served.send_signal(signal.SIGTERM)
        code, _, err = served.end()
    assert time.monotonic() - asked < END_SECONDS
    assert code == 0
    assert "do not stop" in err
    assert "leaving without it" in err


@pytest.mark.parametrize("agent", ["clinging", "blocking"])
def test_after_the_drain_no_agent_holds_the_end_up(start: Starter, agent: str) -> None:
    """`serve` ends with 0 within 5 s of the drain, although an agent shields itself or blocks."""
    served = serve_mine(start, "--drain=0.5")
    with peer(served.url(), "x") as session:
        session.send("job.submit", {"agent": agent, "input": None})
        served.line("at work")
        asked = time.monotonic()
        served.send_signal(signal.SIGTERM)
        code, _, err = served.end()
    assert 0.5 <= time.monotonic() - asked < 0.5 + END_SECONDS
    assert code == 0
    assert "do not stop" in err
    assert "leaving without it" in err


def test_connections_may_take_too_long(start: Starter, tmp_path: Path) -> None:
    """What is not over in time is named: on a busy machine these are connections, and no agents."""
    config = tmp_path / "serve.toml"
    config.write_text("[limits]\nclose_seconds = 60\n", encoding="utf-8")
    served = serve_mine(start, f"--config={config}")
    port = int(served.url().rpartition(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(UPGRADE)
        assert b" 101 " in silent.recv(4096)
        served.send_signal(signal.SIGTERM)
        code, _, err = served.end()
    assert code == 0
    assert "connections that are not closed yet: 1; leaving without it" in err


UPGRADE = b"""GET /arcp HTTP/1.1\r
Host: 127.0.0.1\r
Upgrade: websocket\r
Connection: Upgrade\r
Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r
Sec-WebSocket-Version: 13\r
\r
"""


def test_an_agent_that_reads_the_keyboard(tmp_path: Path) -> None:
    """Ctrl-C twice ends `serve` with 0, although an agent's thread waits for standard input."""
    (tmp_path / "asking.py").write_text(ASKING, encoding="utf-8")
    here = Commands("", tmp_path, token=None)
    with terminal(here, "serve", "--port=0", "--agents=asking") as screen:
        screen.wait_for("try: ")
        assert here.run("submit", "asking", "--detach").code == 0
        screen.wait_for("your name? ")
        screen.type("\x03")
        screen.wait_for("press Ctrl-C again")
        screen.type("\x03")
        assert screen.end() == 0
    assert "Fatal" not in screen.raw
    assert "leaving without it" in screen.raw


ASKING = """
import arcp_trio

agents = arcp_trio.Agents()

@agents.agent("asking")
def asking(job):
    return input("your name? ")
"""

LAST_RESORT = """
import contextlib, os, sys, time
from arcp_trio.cli.serve.stopping import LastResort

read, write = os.pipe()
if sys.argv[1] == "closed":
    os.close(read)
else:
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(4096))
    os.set_blocking(write, True)
os.dup2(write, 2)
LastResort().exit_within(0)
time.sleep(60)
"""


@pytest.mark.parametrize("reader", ["closed", "stalled"])
def test_the_last_resort_needs_no_reader(reader: str) -> None:
    """The last resort ends the process although standard error is closed or full."""
    command = [sys.executable, "-c", LAST_RESORT, reader]
    ended = subprocess.run(command, cwd=ROOT, timeout=60, check=False)
    assert ended.returncode == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("agent", ["sitting", "blocking"])
def test_a_second_signal_ends_it_at_once(
    start: Starter, second: signal.Signals, agent: str
) -> None:
    """During a long drain, even a blocked one, the second signal ends it with 128 + its number."""
    served = serve_mine(start, "--drain", "600")
    with peer(served.url(), "x") as session:
        session.send("job.submit", {"agent": agent, "input": None})
        served.line("at work")
        served.send_signal(signal.SIGTERM)
        served.line({"sitting": "shutting down", "blocking": "signalled"}[agent])
        asked = time.monotonic()
        served.send_signal(second)
        assert served.end()[0] == 128 + second
    assert time.monotonic() - asked < END_SECONDS


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_counts(
    start: Starter, first: signal.Signals, second: signal.Signals
) -> None:
    """Whichever signal comes first, the exit code is 128 + the number of the second one."""
    served = serve_mine(start, "--drain=600")
    with peer(served.url(), "x") as session:
        session.submit("sleeper")
        served.send_signal(first)
        served.line("shutting down")
        asked = time.monotonic()
        served.send_signal(second)
        assert served.end()[0] == 128 + second
    assert time.monotonic() - asked < END_SECONDS


def test_ctrl_c_before_it_serves(start: Starter, tmp_path: Path) -> None:
    """Ctrl-C while agents are imported ends the process with 130 and without a traceback."""
    (tmp_path / "slow_agents.py").write_text(
        "import sys, time\nprint('at it', file=sys.stderr, flush=True)\ntime.sleep(60)\n",
        encoding="utf-8",
    )
    served = start("serve", "--port=0", "--memory", "--agents=slow_agents")
    served.line("at it")
    served.send_signal(signal.SIGINT)
    assert served.end() == (130, "", "")
