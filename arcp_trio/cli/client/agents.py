"""`arcp-trio agents`: the agents of a runtime, and what the input of one must be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from arcp_trio import Client
from arcp_trio.cli.client.columns import write_list
from arcp_trio.cli.client.connecting import connected
from arcp_trio.cli.client.options import AgentsOptions
from arcp_trio.cli.client.output import json_line, stderr, stdout
from arcp_trio.cli.client.runner import run_client
from arcp_trio.cli.client.signals import Interrupts
from arcp_trio.cli.errors import PROGRAM, CommandError, ExitCode, did_you_mean
from arcp_trio.cli.text import safe_line
from arcp_trio.wire.json import JsonObject
from arcp_trio.wire.messages import AgentInfo

_HEADING: Final = ("AGENT", "VERSIONS")


def run(options: AgentsOptions) -> int:
    """List the agents, or show one, and return the exit code."""
    return run_client(_list, options)


async def _list(options: AgentsOptions, interrupts: Interrupts) -> int:
    async with connected(options, interrupts) as client:
        agents, schemas = _asked_for(client, options.agent), client.input_schemas
    if options.json:
        for agent in agents:
            await stdout().write(json_line(_as_json(agent, schemas)))
    else:
        await _write_table(agents)
        if options.agent is not None:
            await _write_inputs(agents[0], schemas)
    return ExitCode.SUCCESS


def _asked_for(client: Client, name: str | None) -> Sequence[AgentInfo]:
    if name is None:
        return client.agents
    wanted = name.partition("@")[0]
    found = [agent for agent in client.agents if agent.name == wanted]
    if not found:
        alike = did_you_mean(wanted, [agent.name for agent in client.agents])
        known = f"{alike}; {PROGRAM} agents lists the agents there are"
        raise CommandError(f"there is no agent {safe_line(name)}{known}", exit_code=ExitCode.FAILED)
    return found


def _as_json(agent: AgentInfo, schemas: Mapping[str, JsonObject]) -> JsonObject:
    return {
        "name": agent.name,
        "versions": [*(agent.versions or ())],
        "default": agent.default,
        "durable": [*(agent.durable or ())],
        "input_schemas": dict(_inputs(agent, schemas)),
    }


def _inputs(agent: AgentInfo, schemas: Mapping[str, JsonObject]) -> Mapping[str, JsonObject]:
    """Return what the inputs of an agent must be, by version."""
    found = {version: schemas.get(f"{agent.name}@{version}") for version in agent.versions or ()}
    return {version: schema for version, schema in found.items() if schema is not None}


async def _write_inputs(agent: AgentInfo, schemas: Mapping[str, JsonObject]) -> None:
    out, inputs = stdout(), _inputs(agent, schemas)
    for version, schema in inputs.items():
        lines = json.dumps(schema, indent=2, ensure_ascii=False).splitlines()
        await out.write(f"\ninput of {agent.name}@{safe_line(version)}, in JSON Schema:\n")
        await out.write("".join(f"{safe_line(line)}\n" for line in lines))
    if not inputs:
        await out.write("\nit does not say what its input must be\n")


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
