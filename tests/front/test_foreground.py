"""A program that serves: its address, and its end at Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.processes import Peer, peer, without_stalls

pytestmark = pytest.mark.real_tcp

PROGRAM = """
import logging, signal, sys, time
import trio, trio.testing, arcp_trio

runtime = arcp_trio.Runtime(auth=arcp_trio.StaticTokens({"s3cret": "alice"}))

@runtime.agent("waiting")
async def waiting(job):
    await job.log("begun")
    try:
        await trio.sleep_forever()
    finally:
        print("cleaned up")

@runtime.agent("busy")
async def busy(job):
    await job.log("begun")
    while True:
        time.sleep(0.01)
        await trio.lowlevel.checkpoint()

@runtime.agent("clinging")
async def clinging(job):
    await job.log("begun")
    try:
        await trio.sleep_forever()
    finally:
        print("asked to end", file=sys.stderr, flush=True)
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

@runtime.agent("blocking")
async def blocking(job):
    await job.log("begun")
    await trio.testing.wait_all_tasks_blocked(0.02)  # until the event is sent
    before = signal.getsignal(signal.SIGINT)
    print("blocks", file=sys.stderr, flush=True)
    while signal.getsignal(signal.SIGINT) is before:
        time.sleep(0.01)
    print("asked to end", file=sys.stderr, flush=True)
    time.sleep(60)

async def main():
    async with runtime:
        await arcp_trio.serve(runtime, port=0)
    print("after the block")
"""
RUN = "\ntrio.run(main)\n"
BESIDE = """
async def beside():
    try:
        async with runtime, trio.open_nursery() as nursery:
            (listener,) = await nursery.start(arcp_trio.serve, runtime, "127.0.0.1", 0)
            port = listener.socket.getsockname()[1]
            print(f"listening on ws://127.0.0.1:{port}/arcp", file=sys.stderr, flush=True)
            nursery.start_soon(trio.sleep_forever)
    except* KeyboardInterrupt:
        print("interrupted")

trio.run(beside)
"""
OWN_HANDLER = """
async def own():
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(main)
            await anext(signals)
            print("mine")
            nursery.cancel_scope.cancel()

async def main():
    async with runtime:
        await arcp_trio.serve(runtime, port=0, task_status=Listening())

class Listening:
    def started(self, listeners):
        port = listeners[0].socket.getsockname()[1]
        print(f"listening on ws://127.0.0.1:{port}/arcp", file=sys.stderr, flush=True)

trio.run(own)
"""


@contextmanager
def program(folder: Path, source: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a program, and return it with its address."""
    (folder / "program.py").write_text(PROGRAM + source, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "program.py"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    guard = threading.Timer(30, process.kill)
    guard.start()
    try:
        assert process.stderr is not None
        line = next(without_stalls(process.stderr), "")
        assert "ws://127.0.0.1:" in line, line + process.stderr.read()
        yield process, line.removeprefix("listening on ").rstrip()
    finally:
        guard.cancel()
        process.kill()
        with process:
            pass


def quiet(err: str) -> bool:
    """Return whether nothing was said, but perhaps that the loop was held for a moment."""
    return not list(without_stalls(err.splitlines()))


def begin(session: Peer, agent: str) -> None:
    """Submit a job and wait until its agent is at work."""
    accepted = session.submit(agent)
    assert accepted["type"] == "job.accepted", accepted
    assert session.receive()["payload"]["body"]["message"] == "begun"


@pytest.mark.parametrize("agent", ["waiting", "busy"])
def test_ctrl_c_ends_a_program_in_order_and_quietly(tmp_path: Path, agent: str) -> None:
    """Jobs end with an error that their clients receive, and the program with exit code 0."""
    with program(tmp_path, RUN) as (process, url), peer(url, "s3cret") as session:
        begin(session, agent)
        process.send_signal(signal.SIGINT)
        (end,) = session.until_terminal()
        assert end["payload"]["code"] == "INTERNAL_ERROR"
        assert "shut down" in end["payload"]["message"]
        out, err = process.communicate()
    assert (process.returncode, quiet(err)) == (0, True), err
    assert out == ("cleaned up\n" if agent == "waiting" else "") + "after the block\n"


@pytest.mark.parametrize("agent", ["clinging", "blocking"])
def test_the_second_ctrl_c_ends_the_process(tmp_path: Path, agent: str) -> None:
    """An agent that does not stop, or blocks the event loop, holds nobody up for long."""
    with program(tmp_path, RUN) as (process, url), peer(url, "s3cret") as session:
        begin(session, agent)
        assert process.stderr is not None
        said = without_stalls(process.stderr)
        assert agent != "blocking" or next(said) == "blocks\n"
        process.send_signal(signal.SIGINT)
        assert next(said) == "asked to end\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, quiet(err)) == (-signal.SIGINT, "", True)


def test_beside_other_tasks_ctrl_c_ends_them_too(tmp_path: Path) -> None:
    """`serve` in a task of its own shuts down in order, then raises KeyboardInterrupt."""
    with program(tmp_path, BESIDE) as (process, url), peer(url, "s3cret") as session:
        begin(session, "waiting")
        process.send_signal(signal.SIGINT)
        (end,) = session.until_terminal()
        assert end["payload"]["code"] == "INTERNAL_ERROR"
        out, err = process.communicate()
    assert (process.returncode, out, quiet(err)) == (0, "cleaned up\ninterrupted\n", True)


def test_a_handler_of_the_program_stays(tmp_path: Path) -> None:
    """A program that receives SIGINT itself goes on receiving it."""
    with program(tmp_path, OWN_HANDLER) as (process, url), peer(url, "s3cret"):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, quiet(err)) == (0, "mine\n", True)


def test_a_log_that_shows_the_address_is_enough(tmp_path: Path) -> None:
    """With a log of level info, the address is in the log alone."""
    source = "\nlogging.basicConfig(level='INFO')\ntrio.run(main)\n"
    (tmp_path / "program.py").write_text(PROGRAM + source, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            assert "listening" not in line
            if "accepting connections" in line:
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0
