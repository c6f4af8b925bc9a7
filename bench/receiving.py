"""This project's client as a program: receives a job's events, and prints how fast that went.

Arguments: the URL, the token, how many events, and how they are taken: `events` or `on_event`.
"""

from __future__ import annotations

import json
import sys

import trio

from arcp_trio import Client, Event, connect
from bench.figures import stopwatch
from bench.streaming import MESSAGE_CHARACTERS


class Count:
    """What the program does with an event: it looks at it."""

    def __init__(self) -> None:
        self.events = 0
        self.characters = 0

    def __call__(self, event: Event) -> None:
        """Look at one."""
        if event.kind == "log":  # and not that the runtime finds it slow
            self.events += 1
            self.characters += len(event.body["message"])


async def receive(client: Client, events: int, count: Count, *, iterating: bool) -> None:
    """Have a job emit so many events, and take them."""
    before = count.events
    job = await client.submit("chatty", {"n": events, "size": MESSAGE_CHARACTERS})
    if iterating:
        async for event in job.events():
            count(event)
    await job.result()
    if count.events - before != events:
        raise RuntimeError(f"{count.events - before} events instead of {events}")


async def main(url: str, token: str, events: int, way: str) -> None:
    """Warm up, measure, print."""
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
