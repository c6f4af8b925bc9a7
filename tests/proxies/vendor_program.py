"""The vendor's Python SDK runtime on its standard streams, as a program.

Apart from the tests, because it runs on asyncio and its warnings are not ours to answer for.
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
    """Sleep."""
    await ctx.log("info", str(os.getpid()))
    await asyncio.sleep(600)


async def main() -> None:
    """Serve the one session there is."""
    runtime = ARCPRuntime(
        runtime=RuntimeInfo(name="vendor", version="1.1.3"),
        bearer=StaticBearerVerifier({os.environ["ARCP_TOKEN"]: "parent"}),
    )
    runtime.register_agent("echo", echo)
    runtime.register_agent("sleeper", sleeper)
    await runtime.accept(await StdioTransport.from_std_streams())


asyncio.run(main())
