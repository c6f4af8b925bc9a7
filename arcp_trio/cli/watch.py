"""`arcp-trio watch`: a job that was submitted elsewhere, from its first event to its end."""

from __future__ import annotations

from collections.abc import Mapping

from arcp_trio.cli.client_options import WatchOptions
from arcp_trio.cli.following import follow
from arcp_trio.cli.reaching import connected
from arcp_trio.cli.running import Interrupts, run_client
from arcp_trio.cli.views import view


def run(given: Mapping[str, object]) -> int:
    """Watch and return the exit code."""
    options = WatchOptions(**given)  # type: ignore[arg-type]  # the parser held each to its kind

    async def watch(interrupts: Interrupts) -> int:
        async with connected(options, interrupts, patience=None) as client:
            job = await client.subscribe(
                options.job_id, history=True, from_event_seq=options.from_seq
            )
            return await follow(client, job, view(as_json=options.json))

    return run_client(options, watch)
