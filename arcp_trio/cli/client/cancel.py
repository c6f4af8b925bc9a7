"""`arcp-trio cancel`: the end of a job that somebody else does not wait for any more."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import CancelOptions
from arcp_trio.cli.client.runner import Interrupts, run_client
from arcp_trio.cli.errors import REFUSED, CommandError
from arcp_trio.cli.text import safe_line
from arcp_trio.wire.errors import PermissionDenied


def run(given: Mapping[str, object]) -> int:
    """Cancel and return the exit code."""
    options = CancelOptions(**given)  # type: ignore[arg-type]  # the parser held each to its kind

    async def cancel(interrupts: Interrupts) -> int:
        async with connected(options, interrupts) as client:
            try:
                await client.cancel(options.job_id, options.reason)
            except PermissionDenied as error:
                raise CommandError(
                    f"refused: {error.code}: {error.message}; press Ctrl-C there, wait until that"
                    " session is over, or ask an operator of the runtime",
                    exit_code=REFUSED,
                ) from error
        return 0

    code = run_client(options, cancel)
    if code == 0:
        print(safe_line(f"{options.job_id} is being cancelled"), file=sys.stderr, flush=True)
    return code
