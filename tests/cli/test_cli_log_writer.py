"""The log's own thread: a reader that is slow, or that does not read, delays nothing else."""

from __future__ import annotations

import io
import logging
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from arcp_trio.cli.log_writer import LogWriter
from tests.cli.processes import ROOT, peer

WAIT_SECONDS = 60.0


class Stuck(io.StringIO):
    """A stream that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        """Wait, then write."""
        self.entered.set()
        assert self.free.wait(WAIT_SECONDS)
        return super().write(text)


def record(number: int) -> logging.LogRecord:
    """Return a record."""
    return logging.makeLogRecord({"msg": "fact %d", "args": (number,)})


def test_lines_are_written_in_order_and_whole_at_the_end() -> None:
    """`flush` waits until all lines are written, in order."""
    stream = io.StringIO()
    writer = LogWriter(stream)
    for number in range(1_000):
        writer.handle(record(number))
    writer.flush()
    assert stream.getvalue().splitlines() == [f"fact {n}" for n in range(1_000)]


def test_lost_lines_are_counted() -> None:
    """The first lines are kept, the lost ones are counted, and their number is logged."""
    stream = Stuck()
    writer = LogWriter(stream, most=3)
    writer.handle(record(0))
    assert stream.entered.wait(WAIT_SECONDS)
    for number in range(1, 10):
        writer.handle(record(number))
    stream.free.set()
    writer.flush()
    lines = stream.getvalue().splitlines()
    assert lines == ["fact 0", "lines lost: the log was not read", "fact 1", "fact 2", "fact 3"]


def test_a_closed_stream_raises_nothing() -> None:
    """Logging to a closed stream raises nothing."""
    stream = io.StringIO()
    writer = LogWriter(stream, most=2)
    stream.close()
    for number in range(10):
        writer.handle(record(number))
    writer.flush()


PRINTS_AND_LOGS = """
import logging, sys
from arcp_trio.cli import logs
from arcp_trio.cli.log_writer import log_writer
logs.set_up("info", "text", log_writer)
for number in range(1_000):
    print("printed", number, file=sys.stderr)
    logging.getLogger("x").info("logged")
"""


def test_whole_lines_beside_what_is_printed() -> None:
    """No line of the log stands in the middle of a line that is printed in pieces."""
    command = [sys.executable, "-c", PRINTS_AND_LOGS]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = ended.stderr.splitlines()
    printed = [line for line in lines if line.startswith("printed")]
    assert printed == [f"printed {number}" for number in range(1_000)]
    assert sum(line.endswith(" x: logged") for line in lines) == 1_000


@pytest.mark.real_tcp
def test_a_runtime_whose_log_is_not_read_goes_on(tmp_path: Path) -> None:
    """With the pipe of the log full, every job ends, and so does the process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "arcp_trio", "serve", "--port=0", "--memory", "--token=alice=a"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("listening on ").strip()
            with peer(url, "a") as session:
                for number in range(1_000):
                    assert session.run("echo", number)[-1]["type"] == "job.result"
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_SECONDS) == 0
            assert process.stderr is not None
            assert 100 < process.stderr.read().count("job ended") < 1_000  # the pipe was full
        finally:
            process.kill()
