"""Tasks that serve a block of code."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def background_tasks() -> AsyncGenerator[trio.Nursery, None]:
    """Open a nursery whose tasks are cancelled when the block ends.

    What the block raises comes out as it is: out of a plain nursery it would come in a group, and
    `pytest.raises` around the block would not know it.
    """
    raised: Exception | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except Exception as exc:  # noqa: BLE001 - raised again below
            raised = exc
        nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised
