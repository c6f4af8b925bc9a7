"""`arcp-trio jobs`: the jobs that may be observed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from arcp_trio.cli.client.columns import table
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import JobsOptions
from arcp_trio.cli.client.output import Output, json_line, stderr, stdout
from arcp_trio.cli.client.runner import Interrupts, run_client
from arcp_trio.client import Client, JobInfo
from arcp_trio.wire.json import JsonObject

NEWEST: Final = 50
"""How many jobs are listed without `--all`."""
_COLUMNS: Final = ("JOB", "STATUS", "AGENT", "CREATED (UTC)")


def run(given: Mapping[str, object]) -> int:
    """List and return the exit code."""
    options = JobsOptions(**given)  # type: ignore[arg-type]  # the parser held each to its kind

    async def show(interrupts: Interrupts) -> int:
        async with connected(options, interrupts) as client:
            await _show(client, options, stdout())
        return 0

    return run_client(options, show)


async def _show(client: Client, options: JobsOptions, out: Output) -> None:
    rows: list[tuple[str, ...]] = [_COLUMNS]
    shown = 0
    async for info in client.jobs(status=options.status, agent=options.agent):
        if shown == NEWEST and not options.all:
            await stderr().write(f"there are more than these {NEWEST}; --all lists them\n")
            break
        shown += 1
        if options.json:
            await out.write(json_line(_as_json(info)))
        else:
            rows.append((info.id, info.status, info.agent, _minute(info.created_at)))
    if not shown:
        await stderr().write("there are no such jobs\n")
    elif not options.json:
        await out.write("".join(f"{line}\n" for line in table(rows, out)))


def _minute(created_at: str | None) -> str:
    """The time as far as people want to know it, so that a line fits into 80 columns."""
    return (created_at or "")[: len("YYYY-MM-DDThh:mm")].replace("T", " ")


def _as_json(info: JobInfo) -> JsonObject:
    return {
        "job_id": info.id,
        "agent": info.agent,
        "status": info.status,
        "created_at": info.created_at,
        "lease": dict(info.lease),
        "parent_job_id": info.parent_id,
    }
