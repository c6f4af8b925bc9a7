"""`arcp-trio nodes`: the nodes that share a store in PostgreSQL."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import attrs
import trio

from arcp_trio.cli.client.columns import write_list
from arcp_trio.cli.client.output import json_line, stderr, stdout
from arcp_trio.cli.errors import ExitCode
from arcp_trio.cli.store import administered
from arcp_trio.cli.store_options import NodesOptions
from arcp_trio.wire.timestamps import rfc3339

_HEADING: Final = ("NAME", "NODE", "STATE", "LAST BEAT", "VERSION", "SINCE", "SESSIONS", "JOBS")


def run(options: NodesOptions) -> int:
    """List the nodes, and return the exit code."""
    with suppress(BrokenPipeError):
        trio.run(_list, options)
    return ExitCode.SUCCESS


async def _list(options: NodesOptions) -> None:
    with administered(options) as dsn:
        from arcp_trio.store.postgres import administering  # noqa: PLC0415 - needs the extra

        found = administering.nodes(dsn, gone=options.all)
    if options.json:
        for node in found:
            shown = {**attrs.asdict(node), "since": rfc3339(node.since)}
            await stdout().write(json_line(shown))
        return
    if not found:
        await stderr().write("there are no nodes\n")
        return
    rows = [
        (
            *(node.name, str(node.node), node.state, _ago(node.beat_seconds)),
            *(node.version, rfc3339(node.since), str(node.sessions), str(node.jobs)),
        )
        for node in found
    ]
    await write_list([_HEADING, *rows], stdout())


def _ago(seconds: float | None) -> str:
    """Return when a node gave its last sign of life."""
    return "" if seconds is None else f"{seconds:.0f} s ago"
