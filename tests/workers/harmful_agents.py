"""Agents in worker processes that take from their own process what it needs to go on."""

from __future__ import annotations

import _thread
import ctypes
import os
import resource
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from arcp_trio import Agents, BlockingContext, JobContext
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.workers.messages import WorkerFrame, packed, value_data
from arcp_trio.wire.json import Json
from tests.workers.in_a_worker import to_the_runtime

agents: Final = Agents()


@contextmanager
def no_descriptors() -> Generator[None]:
    """Have no descriptor left during the block."""
    taken: list[int] = []
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        yield
    finally:
        for each in taken:
            os.close(each)


@agents.agent("without-descriptors", process=True)
async def without_descriptors(job: JobContext) -> Json:
    """Open a file with no descriptor left, and then with some; return the error, and the text."""
    path = Path(job.input)
    number: int | None = None
    with no_descriptors(), trio.move_on_after(5):
        try:
            async with job.open(path):
                pass
        except OSError as error:
            number = error.errno
    async with job.open(path) as file:
        return [number, await file.read()]


@agents.agent("without-memory", process=True)
def without_memory(job: BlockingContext) -> Json:
    """Wait for an answer that needs more memory than is left."""
    child = job.delegate("large", 450_000)
    resource.setrlimit(resource.RLIMIT_DATA, (1, resource.RLIM_INFINITY))
    child.result()


@agents.agent("without-ears", process=True)
def without_ears(job: BlockingContext) -> Json:
    """Stop reading with many large answers on their way; then another process ends the job."""
    job.keep("x" * 60_000)
    data = value_data([job.id])
    calls = [WorkerFrame("call", 1_000_000 + n, Desk.kept.__name__, data) for n in range(100)]
    descriptor = to_the_runtime()
    if os.fork() == 0:
        time.sleep(1)
        os.write(descriptor, packed(WorkerFrame("end", data=value_data("done"))))
        os._exit(0)
    os.write(descriptor, b"".join(map(packed, calls)))
    os.kill(os.getpid(), signal.SIGSTOP)


@agents.agent("orphaning", process=True)
def orphaning(job: BlockingContext) -> Json:
    """End the process, but not another one, which it has forked."""
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    job.log(f"{os.getpid()} {child}")
    os.kill(os.getpid(), signal.SIGKILL)


@agents.agent("freezing", process=True)
def freezing(job: BlockingContext) -> Json:
    """Leave a thread that Python does not list, and that lets no other one run when it is told to.

    The input is a folder: the file `freeze` tells it to, and `frozen` says that it is so.
    """
    folder = Path(job.input)

    def freeze() -> None:
        while not (folder / "freeze").exists():
            time.sleep(0.01)
        ctypes.PyDLL(None).system(f"touch '{folder}/frozen'; sleep 60".encode())

    _thread.start_new_thread(freeze, ())
    return os.getpid()
