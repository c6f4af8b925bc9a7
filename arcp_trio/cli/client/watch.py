"""`arcp-trio watch`: a job that was submitted elsewhere, from its first event to its end."""

from __future__ import annotations

from collections.abc import Mapping

from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.display import view
from arcp_trio.cli.client.follow import EXIT_CODES, follow
from arcp_trio.cli.client.options import WatchOptions
from arcp_trio.cli.client.runner import Interrupts, run_client
from arcp_trio.wire.errors import InvalidRequest


def run(given: Mapping[str, object]) -> int:
    """Watch and return the exit code."""
    options = WatchOptions(**given)  # type: ignore[arg-type]  # the parser held each to its kind

    async def watch(interrupts: Interrupts) -> int:
        async with connected(options, interrupts, patience=None) as client:
            job = await client.subscribe(
                options.job_id, history=True, from_event_seq=options.from_seq
            )
            shown = view(as_json=options.json)
            try:
                return await follow(client, job, shown)
            except* InvalidRequest:
                if options.from_seq is None or job.status not in EXIT_CODES:
                    raise
            notice = f"it had ended before: {job.status}; without --from-seq all of it is shown"
            await shown.screen.add([notice])
            return EXIT_CODES[job.status]

    return run_client(options, watch)
