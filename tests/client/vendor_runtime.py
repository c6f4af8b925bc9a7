"""The vendor's Python SDK runtime as a program: prints its port and serves until it is killed.

A program of its own, because it runs on asyncio and its warnings would fail the tests.
"""

from __future__ import annotations

import asyncio
from typing import Any

from arcp import RuntimeInfo, serve_websocket
from arcp.runtime import ARCPRuntime, StaticBearerVerifier


async def echo(value: Any, ctx: Any) -> Any:
    """Return the input."""
    await ctx.log("info", "echo started")
    return {"echoed": value}


async def ticker(count: Any, ctx: Any) -> Any:
    """Log numbers, ten each second."""
    for number in range(count):
        await ctx.log("info", str(number))
        await asyncio.sleep(0.1)
    return {"n": count}


async def main() -> None:
    """Serve."""
    runtime = ARCPRuntime(
        runtime=RuntimeInfo(name="vendor", version="1.1.3"),
        bearer=StaticBearerVerifier({"tok": "alice"}),
    )
    runtime.register_agent("echo", echo)
    runtime.register_agent("ticker", ticker)
    server = await serve_websocket(runtime.accept, host="127.0.0.1", port=0, path="/arcp")
    async with server:
        print(next(iter(server.sockets)).getsockname()[1], flush=True)  # noqa: T201
        await server.serve_forever()


asyncio.run(main())
