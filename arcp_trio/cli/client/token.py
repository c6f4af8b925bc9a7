"""`arcp-trio token`: a short-lived token with which one can look at jobs, and do nothing else."""

from __future__ import annotations

from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import TokenOptions
from arcp_trio.cli.client.output import json_line, stdout
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import ExitCode
from arcp_trio.cli.ids import whole_job_id


def run(options: TokenOptions) -> int:
    """Print the token, and return the exit code."""
    return run_client(_print_token, options)


async def _print_token(options: TokenOptions, interrupts: Interrupts) -> int:
    async with connected(options, interrupts) as client:
        job_id = options.job_id
        if job_id is not None:
            job_id = await whole_job_id(client, job_id)
        token = await client.token_for(options.expires_in, job_id=job_id)
    await stdout().write(json_line({"token": token}) if options.json else f"{token}\n")
    return ExitCode.SUCCESS
