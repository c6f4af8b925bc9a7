"""Requests to a door, and its answers."""

from __future__ import annotations

from contextlib import suppress

import trio

from tests.front.echo import Answer, EchoRuntime, knock, read_answer


def get(target: str, method: str = "GET", *, version: str = "1.1", more: str = "") -> bytes:
    """Return the head of a request."""
    return f"{method} {target} HTTP/{version}\r\nHost: localhost:7777\r\n{more}\r\n".encode()


async def ask(data: bytes, *, runtime: EchoRuntime | None = None, method: str = "GET") -> Answer:
    """Send `data` through a door, and read the answer."""
    async with trio.open_nursery() as nursery:
        stream = knock(runtime or EchoRuntime(nursery))

        @nursery.start_soon
        async def send() -> None:
            with suppress(trio.ClosedResourceError):  # refused before all of it was sent
                await stream.send_all(data)

        answer = await read_answer(stream, method)
        await stream.aclose()
    return answer
