"""Starting processes: each lives as long as it works, and dies with the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from arcp_trio.transport.starting import StartedProcess, start
from tests.footprint import descriptors
from tests.processes import alive, gone, has_children

pytestmark = pytest.mark.real_tcp

# Asks to be killed when its parent ends, as bubblewrap does; 1 is PR_SET_PDEATHSIG.
TIED = """
import ctypes, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
time.sleep(float(sys.argv[1]))
print("done")
"""
STARTS_ANOTHER = """
import sys, time, trio
from arcp_trio.transport.starting import start

async def main():
    process = await start(["sh", "-c", "echo runs; exec sleep 1000"])
    await process.stdout.receive_some()  # from here on it is tied to this one
    print(process.pid, flush=True)
    await trio.sleep_forever()

trio.run(main)
"""


async def output(process: StartedProcess) -> str:
    """Read standard output to its end, and close everything."""
    said = b"".join([data async for data in process.stdout])
    await process.kill()
    await process.close()
    return said.decode()


async def test_a_process_at_work_is_not_killed_with_an_idle_thread() -> None:
    """A process that dies with its parent works for longer than Trio keeps an idle thread."""
    with trio.fail_after(60):
        assert await output(await start([sys.executable, "-c", TIED, "13"])) == "done\n"


async def test_processes_die_with_the_one_that_started_them() -> None:
    """When a process is killed, so are those that it has started."""
    with trio.fail_after(60):
        parent = await start([sys.executable, "-c", STARTS_ANOTHER])
        pid = int(await parent.stdout.receive_some())
        assert alive(pid)
        os.kill(parent.pid, signal.SIGKILL)
        await gone([pid])
        await output(parent)


@pytest.mark.parametrize("program", ["no-such-program", "/no/such/program", "./no-such-program"])
async def test_a_program_that_is_not_there(program: str) -> None:
    """A program that is not there is an error that names it."""
    with pytest.raises(FileNotFoundError, match=program):
        await start([program])


async def test_a_program_that_is_found_otherwise(tmp_path: Path) -> None:
    """A program is looked for in the folder that it starts in, and on its own PATH."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\necho $0\n")
    program.chmod(0o755)
    with trio.fail_after(60):
        assert await output(await start(["./program"], cwd=tmp_path)) == "./program\n"
        environment = {"PATH": str(tmp_path)}
        assert await output(await start(["program"], environment=environment)) == f"{program}\n"


async def test_streams_and_descriptors() -> None:
    """Standard input may be empty, and errors may come with the output; descriptors are passed."""
    with trio.fail_after(60):
        read, write = os.pipe()
        os.write(write, b"passed")
        os.close(write)
        script = f"cat; cat /dev/fd/{read}; echo wrong >&2"
        process = await start(
            ["sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            pass_fds=[read],
        )
        os.close(read)
        assert process.stdin is None
        assert await output(process) == "passedwrong\n"
        assert process.returncode == 0


async def test_the_number_of_a_process_is_kept_until_its_end() -> None:
    """A process that has exited is reaped by `kill` alone, and gets no signal afterwards."""
    with trio.fail_after(60):
        process = await start(["sh", "-c", "exit 3"])
        await process.wait()
        assert process.returncode == 3
        assert alive(process.pid)
        await process.kill()
        assert not alive(process.pid)
        assert not has_children()
        process.signal(signal.SIGKILL)
        await output(process)


async def test_nothing_stays_behind() -> None:
    """After many processes there are as many descriptors as before, and no threads."""
    with trio.fail_after(60):
        before = descriptors()
        for _ in range(20):
            assert await output(await start(["echo", "a"])) == "a\n"
        assert descriptors() == before
        assert not has_children()
        while any(each.name == "parent of echo" for each in threading.enumerate()):  # noqa: ASYNC110
            await trio.sleep(0.01)  # the last one ends right after it has said so
