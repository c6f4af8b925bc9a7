"""`arcp-trio agents`: the agents of a runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arcp_trio.cli.client.columns import write_list
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import OutputOptions
from arcp_trio.cli.client.output import json_line, stderr, stdout
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import ExitCode
from arcp_trio.wire.messages import AgentInfo

_HEADING: Final = ("AGENT", "VERSIONS")


def run(options: OutputOptions) -> int:
    """List the agents, and return the exit code."""
    return run_client(_list, options)


async def _list(options: OutputOptions, interrupts: Interrupts) -> int:
    async with connected(options, interrupts) as client:
        agents = client.agents
    await (_write_json(agents) if options.json else _write_table(agents))
    return ExitCode.SUCCESS


async def _write_json(agents: Sequence[AgentInfo]) -> None:
    out = stdout()
    for agent in agents:
        entry = {
            "name": agent.name,
            "versions": agent.versions or [],
            "default": agent.default,
            "durable": agent.durable or [],
        }
        await out.write(json_line(entry))


async def _write_table(agents: Sequence[AgentInfo]) -> None:
    if not agents:
        await stderr().write("the runtime has no agents\n")
        return
    rows = [_HEADING, *((agent.name, _versions(agent)) for agent in agents)]
    await write_list(rows, stdout())


def _versions(agent: AgentInfo) -> str:
    """Return the versions in a row; of several, the default one is marked by a star."""
    versions = agent.versions or ()
    starred = agent.default if len(versions) > 1 else None
    return ", ".join(
        version + "*" * (version == starred) + " durable" * (version in (agent.durable or ()))
        for version in versions
    )
