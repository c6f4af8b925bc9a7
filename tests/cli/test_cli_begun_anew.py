"""A streamed result that a durable agent begins anew after a restart, as commands write it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import define

from tests.cli.clients import TOKEN, Commands
from tests.cli.processes import LIFETIME_SECONDS, Serve, Starter, starter
from tests.cli.terminals import terminal

pytestmark = pytest.mark.real_tcp

AGENTS = """
import arcp_trio, trio

agents = arcp_trio.Agents()

@agents.agent("novelist", durable=True)
async def novelist(job):
    async with job.stream_result() as out:
        await out.write(f"Once upon a {job.input[job.run - 1]}")
        if job.run == 1:
            await trio.sleep_forever()
        await out.write(", the end\\n")
"""
OTHER = '["time", "tide"]'
SAME = '["time", "time"]'


@define
class Lives:
    """A server that is killed and started again at the same port, and commands for it."""

    start: Starter
    commands: Commands
    served: Serve

    def again(self) -> None:
        """Kill the server, and start another."""
        self.served.send_signal(signal.SIGKILL)
        self.served.end()
        port = self.commands.url.rpartition(":")[2].partition("/")[0]
        self.served = serve(self.start, port)
        self.served.url()


def serve(start: Starter, port: str = "0") -> Serve:
    """Start a server over a file."""
    options = ("--agents=novelists", "--data=data", "--log-level=error", f"--token=alice={TOKEN}")
    return start("serve", "--port", port, *options)


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Lives]:
    """Have a server over a file."""
    (tmp_path / "novelists.py").write_text(AGENTS, encoding="utf-8")
    with starter(tmp_path, lifetime=5 * LIFETIME_SECONDS) as start:
        served = serve(start)
        yield Lives(start, Commands(served.url(), tmp_path), served)


def test_a_pipe_has_no_mixture(lives: Lives) -> None:
    """What cannot be taken back is not gone on with: the command fails, and `watch` has it all."""
    with lives.commands.start("submit", "novelist", "--input", OTHER) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(16) == "Once upon a time"
        lives.again()
        out, err = process.communicate(timeout=LIFETIME_SECONDS)
    assert (process.returncode, out) == (1, ""), err
    assert "has begun the result anew" in err
    job_id = err.split()[0]
    watched = lives.commands.run("watch", job_id)
    assert (watched.code, watched.out) == (0, "Once upon a tide, the end\n")


def test_the_same_beginning_is_gone_on_with(lives: Lives) -> None:
    """A result that begins as the one before is whole on the pipe."""
    with lives.commands.start("submit", "novelist", "--input", SAME) as process:
        assert process.stdout is not None
        assert process.stdout.read(16) == "Once upon a time"
        lives.again()
        out, err = process.communicate(timeout=LIFETIME_SECONDS)
    assert (process.returncode, out) == (0, ", the end\n"), err


def test_a_terminal_shows_the_whole_of_the_new_one(lives: Lives) -> None:
    """A notice tells the two apart."""
    with terminal(lives.commands, "submit", "novelist", "--input", OTHER) as on:
        on.wait_for("Once upon a time")
        lives.again()
        assert on.end() == 0
    told = "the agent has begun its result anew:"
    assert on.lines[-3:] == [told, "Once upon a tide, the end", ""]
