"""Files of agents under asyncio: no descriptor stays open that nobody has."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from arcp_trio.runtime.job.asyncio_context import AsyncioLink


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


@pytest.mark.parametrize("passes", range(4))
def test_a_cancel_leaves_no_descriptor_open(passes: int, tmp_path: Path) -> None:
    """An agent that is cancelled as its descriptor comes has the file, or nobody has."""
    descriptor = os.open(tmp_path / "a.txt", os.O_CREAT | os.O_RDWR)

    async def opened() -> bool:
        carrier = Carrier()
        task = asyncio.create_task(AsyncioLink(carrier).open("a.txt", "r"))
        await asyncio.sleep(0)
        carrier.future.set_result(descriptor)
        for _ in range(passes):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return not task.cancelled()

    if asyncio.run(opened()):
        os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
