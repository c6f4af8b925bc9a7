"""Ctrl-C in a program that uses the client, as a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.clients import Commands, served
from tests.cli.processes import LIFETIME_SECONDS

pytestmark = pytest.mark.real_tcp

PROGRAM = """
import os, signal, sys
import trio, arcp_trio

printed = trio.Event()

async def interrupt(event):
    await printed.wait()
    os.kill(os.getpid(), signal.SIGINT)  # Ctrl-C while a task of the client runs

async def main():
    handler = interrupt if sys.argv[1] == "within the client" else None
    url, token = os.environ["ARCP_URL"], os.environ["ARCP_TOKEN"]
    async with arcp_trio.connect(url, token=token, on_event=handler) as client:
        job = await client.submit("waiting")
        print(job.id, flush=True)
        printed.set()
        await job.result()

trio.run(main)
"""


@pytest.mark.parametrize("where", ["within the client", "within the program"])
def test_ctrl_c_ends_a_program_as_it_ends_any_other(tmp_path: Path, where: str) -> None:
    """KeyboardInterrupt comes out of the block as itself; the job goes on."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    with served(tmp_path) as commands, started(commands, where) as process:
        assert process.stdout is not None
        job_id = process.stdout.readline().rstrip()
        assert job_id.startswith("job_")
        if where == "within the program":
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIFETIME_SECONDS)
        assert process.returncode == -signal.SIGINT, err
        assert err.endswith("\nKeyboardInterrupt\n")
        assert "Group" not in err
        assert job_id in commands.run("jobs", "--status", "running").out


def started(commands: Commands, where: str) -> subprocess.Popen[str]:
    """Start the program in the folder of the commands."""
    return subprocess.Popen(
        [sys.executable, "program.py", where],
        cwd=commands.folder,
        env=commands.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
