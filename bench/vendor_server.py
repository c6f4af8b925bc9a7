"""The vendor's runtime, with agents that do the same as those of this runtime.

It is set up as its own command line does: with an event log in memory and a static token.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

from arcp import RuntimeInfo, serve_websocket
from arcp.runtime import ARCPRuntime, JobContext, StaticBearerVerifier

from arcp_trio.wire.json import Json

CHUNK_CHARACTERS: Final = 256 * 1024


async def chatty(settings: Json, job: JobContext) -> dict[str, int]:
    """Log `n` messages of `size` characters."""
    n, size = settings["n"], settings["size"]
    for number in range(1, n + 1):
        await job.log("info", f"message {number} ".ljust(size, ".")[:size])
    return {"n": n}


async def report(settings: Json, job: JobContext) -> None:
    """Stream a text of `size` characters, in chunks of the same size as this project's runtime.

    The peer sends each write as one chunk.
    """
    async with job.stream_result() as out:
        for left in range(settings["size"], 0, -CHUNK_CHARACTERS):
            await out.write("." * min(left, CHUNK_CHARACTERS))


async def echo(given: Json, _job: JobContext) -> dict[str, Json]:
    """Return the input."""
    return {"echo": given}


gate = asyncio.Semaphore(0)


async def announcer(settings: Json, job: JobContext) -> dict[str, int]:
    """Log as `chatty` does, after a job of `go` has started."""
    await gate.acquire()
    return await chatty(settings, job)


async def go(_given: Json, _job: JobContext) -> None:
    """Let an announcer begin."""
    gate.release()


async def ticker(given: Json, job: JobContext) -> None:
    """Log the time `n` times, once every `interval` seconds, and catch up after being late."""
    due = given["begin"]
    for _ in range(given["n"]):
        await asyncio.sleep(max(0, due - time.monotonic()))
        await job.log("info", f"sent {time.monotonic():020.9f} due {due:020.9f}")
        due += given["interval"]


async def main(token: str) -> None:
    """Serve until the process is ended."""
    runtime = ARCPRuntime(
        runtime=RuntimeInfo(name="bench-peer", version="1.1.0"),
        bearer=StaticBearerVerifier({token: "bench"}),
    )
    for agent in (chatty, report, echo, announcer, go, ticker):
        runtime.register_agent(agent.__name__, agent)
    server = await serve_websocket(runtime.accept, host="127.0.0.1", port=0)
    port = next(iter(server.sockets)).getsockname()[1]
    print(f"listening on ws://127.0.0.1:{port}/arcp", flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
