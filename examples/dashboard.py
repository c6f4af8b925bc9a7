"""A dashboard: follows all jobs that run, also those that begin later, and prints what they do.

    make serve
    ARCP_TOKEN=$(cat .arcp/token) python examples/dashboard.py

`ARCP_URL` names another runtime than ws://127.0.0.1:7777/arcp. A principal sees its own jobs; one
that `serve --observer` names sees everybody's. The dashboard may come and go: jobs do not notice.
"""

from __future__ import annotations

import os
import sys

import trio

import arcp_trio

URL = os.environ.get("ARCP_URL", "ws://127.0.0.1:7777/arcp")


async def main() -> None:
    """Look for jobs that are not followed yet, once a second."""
    followed: set[str] = set()
    async with (
        arcp_trio.connect(URL, token=os.environ["ARCP_TOKEN"]) as client,
        trio.open_nursery() as nursery,
    ):
        print(f"watching {URL}")
        while True:
            async for job in client.jobs(status=["pending", "running"]):
                if job.id not in followed:
                    followed.add(job.id)
                    nursery.start_soon(follow, client, job)
            await trio.sleep(1)


async def follow(client: arcp_trio.Client, job: arcp_trio.JobInfo) -> None:
    """Print what one job does, from its first event to its end."""
    name = f"{job.agent} …{job.id[-4:]}"
    try:
        observed = await client.subscribe(job.id, history=True)
        async for event in observed.events():
            print(f"{name}: {event.kind} {event.body}")
        print(f"{name}: returned {await observed.result()}")
    except arcp_trio.ArcpError as error:
        print(f"{name}: ended, {error.code}: {error.message}")


if __name__ == "__main__":
    if "ARCP_TOKEN" not in os.environ:
        sys.exit("set ARCP_TOKEN to the token that `arcp-trio serve` shows")
    failure: Exception | None = None
    try:
        trio.run(main)
    except* KeyboardInterrupt:
        pass
    except* (arcp_trio.ConnectionFailed, arcp_trio.ArcpError) as failures:
        failure = failures.exceptions[0]
    if failure is not None:
        sys.exit(f"{type(failure).__name__}: {failure}")
