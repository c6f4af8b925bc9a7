"""The vendor's client as a program that does what `bench.receiving` does."""

from __future__ import annotations

import asyncio
import json
import sys

from arcp import ClientInfo, WebSocketTransport
from arcp.client import ARCPClient

from bench.figures import stopwatch
from bench.streaming import MESSAGE_CHARACTERS


async def receive(client: ARCPClient, events: int) -> None:
    """Have a job emit this many events, and receive them."""
    count = characters = 0
    settings = {"n": events, "size": MESSAGE_CHARACTERS}
    job = await client.submit(agent="chatty", input=settings)
    async for event in job.events():
        if event["kind"] == "log":
            count += 1
            characters += len(event["body"]["message"])
    await job.done
    if count != events:
        raise RuntimeError(f"{count} events instead of {events}")


async def main(url: str, token: str, events: int) -> None:
    """Warm up, measure, and print."""
    client = ARCPClient(client=ClientInfo(name="bench", version="1.0.0"), token=token)
    await client.connect(await WebSocketTransport.connect(url))
    await receive(client, events // 10)
    with stopwatch() as watch:
        await receive(client, events)
    print(json.dumps({"rate": events / watch.seconds, "busy": watch.busy}))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
