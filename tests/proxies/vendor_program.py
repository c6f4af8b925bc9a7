"""A program that is a runtime of the vendor's Python SDK on its standard streams.

The SDK runs on asyncio, and its warnings must not fail a test, so it is a process of its own.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from arcp import RuntimeInfo, StdioTransport
from arcp.runtime import ARCPRuntime, StaticBearerVerifier


async def echo(value: Any, ctx: Any) -> Any:
    """Return the input."""
    await ctx.log("info", "echo started")
    return {"echoed": value}


async def sleeper(_: Any, ctx: Any) -> Any:
    """Sleep for ten minutes."""
    await ctx.log("info", str(os.getpid()))
    await asyncio.sleep(600)


async def main() -> None:
    """Serve one session."""
    runtime = ARCPRuntime(
        runtime=RuntimeInfo(name="vendor", version="1.1.3"),
        bearer=StaticBearerVerifier({os.environ["ARCP_TOKEN"]: "parent"}),
    )
    runtime.register_agent("echo", echo)
    runtime.register_agent("sleeper", sleeper)
    await runtime.accept(await StdioTransport.from_std_streams())


asyncio.run(main())
