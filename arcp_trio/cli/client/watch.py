"""`arcp-trio watch`: a job that was submitted elsewhere, from its first event to its end."""

from __future__ import annotations

from functools import partial

from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.display import make_display
from arcp_trio.cli.client.follow import EXIT_CODES, follow
from arcp_trio.cli.client.leaving import CANCEL_REASON, Leaving
from arcp_trio.cli.client.options import WatchOptions
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.ids import whole_job_id
from arcp_trio.wire.errors import InvalidRequest


def run(options: WatchOptions) -> int:
    """Show the job, and return the exit code."""
    return run_client(_watch, options)


async def _watch(options: WatchOptions, interrupts: Interrupts) -> int:
    async with connected(options, interrupts, patience=None) as client:
        job_id = await whole_job_id(client, options.job_id)
        job = await client.subscribe(job_id, history=True, from_event_seq=options.from_seq)
        display = make_display(as_json=options.json)
        stop = partial(client.stop, job.id, CANCEL_REASON)
        leaving = Leaving(client, job, display.screen, interrupts, stop)
        try:
            return await follow(client, job, display)
        except* InvalidRequest:
            if options.from_seq is None or job.status not in EXIT_CODES:
                raise
        finally:
            if job.terminal is None and display.screen.can_ask:
                leaving.note_connection()
                leaving.tell()
        notice = f"the job ended before: {job.status}; without --from-seq all of it is shown"
        await display.screen.add([notice])
        return EXIT_CODES[job.status]
