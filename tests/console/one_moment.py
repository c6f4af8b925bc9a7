"""A runtime whose clock stands still: all of its jobs are created in the same millisecond."""

from __future__ import annotations

import sys

import trio

from arcp_trio import JobContext, Runtime, StaticTokens, serve
from arcp_trio.wire.json import JsonValue
from tests.cli.clients import TOKEN


class Noon:
    """A clock at which it is always the same time."""

    def now(self) -> float:
        """Seconds since 1970, UTC."""
        return 1_800_000_000.123


async def child(job: JobContext) -> JsonValue:
    """Do nothing."""
    return None


async def family(job: JobContext) -> JsonValue:
    """Delegate to `child`."""
    await (await job.delegate("child", None)).result()
    return None


async def main() -> None:
    """Serve until killed, and say where."""
    runtime = Runtime(auth=StaticTokens({TOKEN: "alice"}), clock=Noon())
    runtime.agent("child")(child)
    runtime.agent("family")(family)
    async with runtime, trio.open_nursery() as nursery:
        listeners = await nursery.start(serve, runtime, "127.0.0.1", 0)
        port = listeners[0].socket.getsockname()[1]
        sys.stdout.write(f"listening on ws://127.0.0.1:{port}/arcp\n")
        sys.stdout.flush()


if __name__ == "__main__":
    trio.run(main)
