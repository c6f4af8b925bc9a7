"""The project's own client as a program that receives a job's events and prints how fast it did.

Arguments: the URL, the token, the number of events, and how to receive them: `events` or
`on_event`.
"""

from __future__ import annotations

import json
import sys

import trio

from arcp_trio import Client, Event, connect
from bench.figures import stopwatch
from bench.streaming import MESSAGE_CHARACTERS


class Count:
    """Counts events and their characters, as a program that reads each event would."""

    def __init__(self) -> None:
        self.events = 0
        self.characters = 0

    def __call__(self, event: Event) -> None:
        """Count one event."""
        if event.kind == "log":  # not the runtime's warnings about a slow reader
            self.events += 1
            self.characters += len(event.body["message"])


async def receive(client: Client, events: int, count: Count, *, iterating: bool) -> None:
    """Have a job emit this many events, and receive them."""
    before = count.events
    job = await client.submit("chatty", {"n": events, "size": MESSAGE_CHARACTERS})
    if iterating:
        async for event in job.events():
            count(event)
    await job.result()
    if count.events - before != events:
        raise RuntimeError(f"{count.events - before} events instead of {events}")


async def main(url: str, token: str, events: int, way: str) -> None:
    """Warm up, measure, and print."""
    count = Count()

    async def on_event(event: Event) -> None:
        count(event)

    iterating = way == "events"
    handler = None if iterating else on_event
    async with connect(url, token=token, on_event=handler) as client:
        await receive(client, events // 10, count, iterating=iterating)
        with stopwatch() as watch:
            await receive(client, events, count, iterating=iterating)
    print(json.dumps({"rate": events / watch.seconds, "busy": watch.busy}))


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
