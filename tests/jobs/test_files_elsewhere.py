"""Files of agents outside of the runtime's loop: no descriptor stays open that nobody has."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from arcp_trio.runtime.job.asyncio_context import AsyncioLink
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.workers.trio_work import TrioLink


class Carrier:
    """A carrier of one operation, which a test settles."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()

    def start(self, _operation: Callable[..., object], *_args: object) -> Future[Any]:
        """Begin the operation."""
        return self.future

    def ask(self, _operation: Callable[..., object], *_args: object) -> Any:
        """Fail: nothing is asked."""
        raise NotImplementedError

    def span(self, _call_id: str) -> AbstractContextManager[object]:
        """Return an empty block."""
        return nullcontext()


async def opened_under_asyncio(descriptor: int, passes: int) -> bool:
    """Cancel an agent some passes of asyncio's loop after its descriptor; say if it has it."""
    carrier = Carrier()
    task = asyncio.create_task(AsyncioLink(carrier).do(Desk.open, "a.txt", "r"))
    await asyncio.sleep(0)
    carrier.future.set_result(descriptor)
    for _ in range(passes):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return not task.cancelled()


async def opened_on_trio(descriptor: int, passes: int) -> bool:
    """Cancel an agent some passes of Trio's loop after its descriptor; say if it has it."""
    carrier = Carrier()
    got: list[int] = []

    async def agent() -> None:
        got.append(await TrioLink(carrier).do(Desk.open, "a.txt", "r"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent)
        await trio.testing.wait_all_tasks_blocked()
        carrier.future.set_result(descriptor)
        for _ in range(passes):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    return got == [descriptor]


@pytest.mark.parametrize("passes", range(4))
@pytest.mark.parametrize("loop", ["trio", "asyncio"])
def test_a_cancel_leaves_no_descriptor_open(passes: int, loop: str, tmp_path: Path) -> None:
    """An agent that is cancelled as its descriptor comes has the file, or nobody has."""
    descriptor = os.open(tmp_path / "a.txt", os.O_CREAT | os.O_RDWR)
    if loop == "trio":
        has_it = trio.run(opened_on_trio, descriptor, passes)
    else:
        has_it = asyncio.run(opened_under_asyncio(descriptor, passes))
    if has_it:
        os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
