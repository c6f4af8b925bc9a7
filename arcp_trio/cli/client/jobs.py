"""`arcp-trio jobs`: the jobs that may be observed."""

from __future__ import annotations

from typing import Final

from arcp_trio import Client, JobInfo
from arcp_trio.cli.client.columns import write_list
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import NEWEST, JobsOptions
from arcp_trio.cli.client.output import Output, json_line, stderr, stdout
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import ExitCode
from arcp_trio.wire.json import JsonObject

_HEADING: Final = ("JOB", "STATUS", "AGENT", "CREATED (UTC)")


def run(options: JobsOptions) -> int:
    """List the jobs, and return the exit code."""
    return run_client(_list, options)


async def _list(options: JobsOptions, interrupts: Interrupts) -> int:
    async with connected(options, interrupts) as client:
        await _write(client, options, stdout())
    return ExitCode.SUCCESS


async def _write(client: Client, options: JobsOptions, out: Output) -> None:
    rows: list[tuple[str, ...]] = [_HEADING]
    listed = 0
    async for info in client.jobs(status=options.status or None, agent=options.agent):
        if listed == NEWEST and not options.all:
            await stderr().write(f"there are more than these {NEWEST}; --all lists them\n")
            break
        listed += 1
        if options.json:
            await out.write(json_line(_as_json(info)))
        else:
            rows.append((info.id, info.status, info.agent, _minute(info.created_at)))
    if not listed:
        await stderr().write("there are no such jobs\n")
    elif not options.json:
        await write_list(rows, out)


def _minute(created_at: str | None) -> str:
    """Return a time without its seconds, so that the line of a job fits into 80 columns."""
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
