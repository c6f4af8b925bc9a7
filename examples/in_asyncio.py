"""A client in an asyncio program: Trio runs beside asyncio's event loop, in the same thread.

    make serve
    ARCP_TOKEN=$(cat .arcp/token) python examples/in_asyncio.py

`run_trio` is all that it takes. A thread has one such run at a time: start it once, and let the two
sides talk through queues. What cancels asyncio's side, such as Ctrl-C, cancels Trio's, too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial

import trio
from outcome import Outcome

import arcp_trio

URL = os.environ.get("ARCP_URL", "ws://127.0.0.1:7777/arcp")


async def run_trio(function: Callable[[], Awaitable[None]]) -> None:
    """Run an async function of Trio's beside asyncio's event loop."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Outcome[None]] = loop.create_future()
    scope = trio.CancelScope()

    async def scoped() -> None:
        with scope:
            await function()

    soon = loop.call_soon_threadsafe
    trio.lowlevel.start_guest_run(
        scoped, run_sync_soon_threadsafe=soon, done_callback=ended.set_result
    )
    trio_side = trio.lowlevel.current_trio_token()
    try:
        await asyncio.shield(ended)
    finally:
        if not ended.done():
            trio_side.run_sync_soon(scope.cancel)
        (await ended).unwrap()  # noqa: ASYNC102 - Trio's side is cancelled, and ends


async def follow(token: str, said: asyncio.Queue[object]) -> None:
    """Submit a job on Trio's side, and hand on its events, its result or error, and None."""
    try:
        async with arcp_trio.connect(URL, token=token) as client:
            job = await client.submit("countdown", {"n": 5})
            async for event in job.events():
                said.put_nowait(event.body)
            said.put_nowait(await job.result())
    except (arcp_trio.ConnectionFailed, arcp_trio.ArcpError) as error:
        said.put_nowait(f"{type(error).__name__}: {error}")
    finally:
        said.put_nowait(None)


async def main(token: str) -> None:
    """Print them on asyncio's side, where other asyncio tasks may run, too."""
    said: asyncio.Queue[object] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        group.create_task(run_trio(partial(follow, token, said)))
        while (something := await said.get()) is not None:
            print(something)


if __name__ == "__main__":
    if "ARCP_TOKEN" not in os.environ:
        sys.exit("set ARCP_TOKEN to the token that `arcp-trio serve` shows")
    try:
        asyncio.run(main(os.environ["ARCP_TOKEN"]))
    except KeyboardInterrupt:
        sys.exit("left, and the job goes on")
