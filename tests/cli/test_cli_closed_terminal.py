"""`serve` ends when its terminal is closed, unless it is to outlive the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.processes import ROOT

pytestmark = pytest.mark.real_tcp

WAIT_SECONDS = 60.0


@contextmanager
def left_alone(folder: Path, *, hangups: signal.Handlers) -> Iterator[subprocess.Popen[str]]:
    """Run `serve` on a terminal, which is then closed."""
    screen, inside = pty.openpty()

    def take_over() -> None:
        fcntl.ioctl(inside, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, hangups)

    process = subprocess.Popen(
        [sys.executable, "-m", "arcp_trio", "serve", "--port=0", "--memory", "--token=alice=a"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        pass_fds=(inside,),
        preexec_fn=take_over,  # noqa: PLW1509 - it makes two system calls
    )
    os.close(inside)
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on ")
            os.close(screen)
            yield process
        finally:
            process.kill()


def test_it_ends_with_its_terminal(tmp_path: Path) -> None:
    """`serve` ends in order, as at SIGTERM, and logs why."""
    with left_alone(tmp_path, hangups=signal.SIG_DFL) as process:
        _, said = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == 0
        assert "terminal closed" in said


def test_it_outlives_its_terminal_under_nohup(tmp_path: Path) -> None:
    """Under nohup, SIGHUP reloads, as it does without a terminal."""
    with left_alone(tmp_path, hangups=signal.SIG_IGN) as process:
        assert process.stderr is not None
        while "reloaded what=tokens" not in (line := process.stderr.readline()):
            assert line
        assert process.poll() is None


OUT_OF_FILES = """
import os, resource
from arcp_trio.cli.serve.reloading import Terminal

os.close(os.open("/dev/tty", os.O_RDWR))
terminal = Terminal()
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
print(terminal.closed)
"""


def test_without_file_descriptors_the_terminal_is_not_taken_for_closed() -> None:
    """The terminal is not taken for closed when no descriptor is free to look for it."""
    screen, inside = pty.openpty()
    try:
        said = subprocess.run(
            [sys.executable, "-c", OUT_OF_FILES],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            pass_fds=(inside,),
            preexec_fn=lambda: fcntl.ioctl(inside, termios.TIOCSCTTY, 0),
            timeout=WAIT_SECONDS,
            check=True,
        )
    finally:
        os.close(inside)
        os.close(screen)
    assert said.stdout == "False\n"
