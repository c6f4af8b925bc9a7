"""`arcp-trio agents`: what a runtime has to offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from arcp_trio.cli.client.columns import table
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import AgentsOptions
from arcp_trio.cli.client.output import json_line, stderr, stdout
from arcp_trio.cli.client.runner import Interrupts, run_client
from arcp_trio.wire.messages import AgentInfo

_COLUMNS: Final = ("AGENT", "VERSIONS")


def run(given: Mapping[str, object]) -> int:
    """List and return the exit code."""
    options = AgentsOptions(**given)  # type: ignore[arg-type]  # the parser held each to its kind

    async def show(interrupts: Interrupts) -> int:
        async with connected(options, interrupts) as client:
            agents = client.agents
        await (_write_json(agents) if options.json else _write_table(agents))
        return 0

    return run_client(options, show)


async def _write_json(agents: tuple[AgentInfo, ...]) -> None:
    out = stdout()
    for agent in agents:
        entry = {"name": agent.name, "versions": agent.versions or [], "default": agent.default}
        await out.write(json_line(entry))


async def _write_table(agents: tuple[AgentInfo, ...]) -> None:
    if not agents:
        await stderr().write("the runtime has no agents\n")
        return
    out = stdout()
    rows = [_COLUMNS, *((agent.name, _versions(agent)) for agent in agents)]
    await out.write("".join(f"{line}\n" for line in table(rows, out)))


def _versions(agent: AgentInfo) -> str:
    """Name them, the one that is taken where nobody asks for another one marked by a star."""
    several = len(agent.versions or ()) > 1
    return ", ".join(
        f"{version}*" if several and version == agent.default else version
        for version in agent.versions or ()
    )
