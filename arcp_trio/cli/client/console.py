"""`arcp-trio console`: opens the console, the page of a runtime, in the browser."""

from __future__ import annotations

import os
import webbrowser
from functools import partial

import trio

from arcp_trio.addresses import addresses_in, page_url, signed_in
from arcp_trio.cli.client.connecting import connected, find_runtime
from arcp_trio.cli.client.options import ConsoleOptions
from arcp_trio.cli.client.output import stdout
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import CommandError, ExitCode
from arcp_trio.runtime.views import PREFIX


def run(options: ConsoleOptions) -> int:
    """Open the page, and return the exit code."""
    return run_client(_open, options)


async def _open(options: ConsoleOptions, interrupts: Interrupts) -> int:
    runtime = find_runtime(options, os.environ)
    page = page_url(addresses_in(runtime.url)[0])
    if page is None:
        raise CommandError(f"a browser cannot open {runtime.shown_url}; serve on a TCP port, too")
    # A wrong token, or a runtime that is not there, is said here rather than in the page.
    async with connected(options, interrupts) as client:
        if runtime.token is None:
            link = page
        elif runtime.token.startswith(PREFIX):
            link = signed_in(page, runtime.token)  # it is made for links
        else:
            # Everybody on the machine sees the browser's command line, and its history stays.
            link = signed_in(page, await client.code_for(runtime.token), "code")
    opened = False
    if not options.print:
        opened = await trio.to_thread.run_sync(partial(webbrowser.open, link))
    if not opened:
        await stdout().write(f"{link}\n")
    return ExitCode.SUCCESS
