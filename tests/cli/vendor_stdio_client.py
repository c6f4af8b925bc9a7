"""A session of the vendor's Python SDK over the pipes of a process; prints its results as JSON.

It is not a test module, because it runs on asyncio and its warnings are not this project's.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

from arcp import ClientInfo, StdioTransport
from arcp.client import ARCPClient


async def main(command: list[str]) -> None:
    """Start the runtime, run two jobs, and leave."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    client = ARCPClient(client=ClientInfo(name="vendor", version="1.1.3"), token="tok")
    await client.connect(await StdioTransport.from_process_pipes(process))
    echo = await client.submit(agent="echo", input={"text": "é漢😀"})
    said: dict[str, Any] = {"echo": (await echo.done).result}
    report = await client.submit(agent="report", input={"size": 1_000_000})
    said["report"] = len(await report.collect_chunks())
    await client.close()
    said["code"] = await process.wait()
    print(json.dumps(said))  # noqa: T201


asyncio.run(asyncio.wait_for(main(sys.argv[1:]), 20))
