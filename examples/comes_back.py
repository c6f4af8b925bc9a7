"""A client that may be killed at any time, and comes back to the same job.

    make serve
    ARCP_TOKEN=$(cat .arcp/token) python examples/comes_back.py report-of-monday

The argument is the job's idempotency key. The first run starts the job. Kill that run, even with
`kill -9`, and start it again with the same key: the job has gone on meanwhile, and its events come
again from the first one; after its end, its result comes alone. There is never a second job.
"""

from __future__ import annotations

import os
import sys

import trio

import arcp_trio

URL = os.environ.get("ARCP_URL", "ws://127.0.0.1:7777/arcp")


async def main(key: str) -> None:
    """Submit the job, or find it, and follow it to its end."""
    async with arcp_trio.connect(URL, token=os.environ["ARCP_TOKEN"]) as client:
        job = await client.submit("countdown", {"n": 50}, idempotency_key=key)
        print(f"job {job.id}")
        async for event in job.events():
            print(event.kind, event.body)
        print(await job.result())


if __name__ == "__main__":
    match sys.argv:
        case [_, key] if "ARCP_TOKEN" in os.environ:
            try:
                trio.run(main, key)
            except (arcp_trio.ConnectionFailed, arcp_trio.ArcpError) as error:
                sys.exit(f"{type(error).__name__}: {error}")
            except KeyboardInterrupt:
                sys.exit("left, and the job goes on: start this again with the same key")
        case _:
            sys.exit("usage: ARCP_TOKEN=… comes_back.py KEY")
