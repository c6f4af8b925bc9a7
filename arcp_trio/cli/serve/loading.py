"""The agents of `serve`: those that the options name, or else the demo agents."""

from __future__ import annotations

import importlib
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from types import ModuleType
from typing import Final, cast

from arcp_trio.authority.grants import parse_grant
from arcp_trio.authority.patterns import URLS
from arcp_trio.cli.data_folder import agents_path
from arcp_trio.cli.errors import CommandError, one_line
from arcp_trio.cli.serve.demo import demo_agents
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.cli.serve.places import place_in_own_code, shown_path
from arcp_trio.proxies.acp.agent import acp_agent
from arcp_trio.proxies.stdio import stdio_agent
from arcp_trio.runtime.job.agent import AgentFunction
from arcp_trio.runtime.job.agents import DEFAULT_VERSION, Agents
from arcp_trio.sandbox.containment import Mode, NoSandbox
from arcp_trio.wire.agent_ref import parse_agent_ref
from arcp_trio.wire.errors import InvalidRequest

log = logging.getLogger(__name__)

DEFAULT_REGISTRY: Final = "agents"

_STDIO: Final = "stdio"
_ACP: Final = "acp"
"""The folder in the data folder that is for agents."""
_NO_REGISTRY: Final = "; write agents = arcp_trio.Agents() in it, and @agents.agent(…) above each"


def load_agents(options: ServeOptions) -> Agents:
    """Return all agents to serve: the demo agents, too, if they are asked for or no other is named.

    A demo agent gives way to another agent of its name.

    Raises:
        CommandError: an agent cannot be loaded, or two have the same name and version.
    """
    agents = Agents()
    try:
        for registry in named_agents(options):
            agents.add(registry)
    except ValueError as error:
        raise CommandError(f"cannot serve these agents together: {error}") from error
    wanted = options.demo_agents or not (options.agent or options.agents)
    if wanted and not options.no_demo_agents:
        agents.add(demo_agents(taken=agents.names()))
    return agents


def named_agents(options: ServeOptions) -> list[Agents]:
    """Return a registry for each --agent, then one for each --agents."""
    if options.agent or options.agents:
        # Modules of the current folder come before installed ones of the same name.
        sys.path.insert(0, str(Path.cwd()))
    registries = list(map(_registry, options.agents))
    if options.workers is not None:
        if not registries:
            log.warning("no agent runs in a worker: --workers is for those of --agents")
        try:
            registries = [registry.in_processes() for registry in registries]
        except TypeError as error:
            raise CommandError(f"--workers: {error}") from error
    return [*(_one_agent(text, options) for text in options.agent), *registries]


def _one_agent(text: str, options: ServeOptions) -> Agents:
    where = f"--agent {text}"
    name, equals, target = text.partition("=")
    kind, colon, rest = target.partition(":")
    if not (equals and kind and colon and rest):
        raise CommandError(
            f"{where}: write NAME[@VERSION]=MODULE:FUNCTION, =stdio:COMMAND or =acp:COMMAND"
        )
    try:
        ref = parse_agent_ref(name)
    except InvalidRequest as error:
        raise CommandError(f"{where}: {error.message}") from error
    if kind == _STDIO:
        function = stdio_agent(_words(where, rest))
    elif kind == _ACP:
        function = _acp_agent(_words(where, rest), options)
    else:
        function = _function(where, kind, rest)
    agents = Agents()
    try:
        agents.agent(ref.name, version=ref.version or DEFAULT_VERSION)(function)
    except TypeError as error:
        raise CommandError(f"{where}: {error}") from error
    return agents


def _function(where: str, module_name: str, name: str) -> AgentFunction:
    return cast("AgentFunction", _attribute(where, _module(where, module_name), name))


def _acp_agent(words: Sequence[str], options: ServeOptions) -> AgentFunction:
    if options.agent_home is not None and not Path(options.agent_home).is_dir():
        raise CommandError(f"--agent-home {options.agent_home}: there is no such folder")
    for path in options.sandbox_read:
        if not Path(path).exists():
            raise CommandError(f"--sandbox-read {path}: there is no such file")
    for url in options.sandbox_net:
        try:
            parse_grant(URLS, url)
        except ValueError as error:
            raise CommandError(f"--sandbox-net {url}: {error}") from error
    try:
        return acp_agent(
            words,
            environment=dict(map(_variable, options.agent_env)),
            sandbox=cast("Mode", options.sandbox),
            data=None if options.folder is None else agents_path(options.folder).absolute(),
            home=options.agent_home and Path(options.agent_home).absolute(),
            read=[Path(path).absolute() for path in options.sandbox_read],
            net=options.sandbox_net,
        )
    except NoSandbox as error:
        raise CommandError(f"--sandbox {options.sandbox}: {error}") from error


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or (not equals and name not in os.environ):
        raise CommandError(
            f"--agent-env {text}: write NAME=VALUE, or NAME of a variable that is set"
        )
    return name, value if equals else os.environ[name]


def _words(where: str, command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CommandError(f"{where}: {str(error).lower()}") from error
    if not words or shutil.which(words[0]) is None:
        program = repr(words[0]) if words else "the command"
        raise CommandError(f"{where}: {program} is not a program that can be run")
    return words


def _registry(text: str) -> Agents:
    where = f"--agents {text}"
    module_name, colon, registry_name = text.partition(":")
    if not module_name or (colon and not registry_name):
        raise CommandError(f"{where}: write MODULE or MODULE:REGISTRY")
    registry_name = registry_name or DEFAULT_REGISTRY
    registry = _attribute(where, _module(where, module_name), registry_name)
    if not isinstance(registry, Agents):
        raise CommandError(f"{where}: {registry_name} is not an arcp_trio.Agents")
    return registry


def _module(where: str, name: str) -> ModuleType:
    if "/" in name:
        path = PurePath(name.removesuffix(".py"))
        dotted = path.name if path.is_absolute() or ".." in path.parts else ".".join(path.parts)
        raise CommandError(f"{where}: write {dotted}, a module below the current folder has no /")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            # The module was found, and imports another one that is missing.
            raise _import_failure(where, name, error) from error
        raise CommandError(_missing(where, name, error.name)) from error
    # A fence around the code of the module, which may raise anything, or leave.
    except (Exception, SystemExit) as error:
        raise _import_failure(where, name, error) from error


def _missing(where: str, name: str, missing: str) -> str:
    if name.endswith(".py"):
        return f"{where}: leave out the .py, {name.removesuffix('.py')} is the name of the module"
    return f"{where}: there is no module {missing}, neither in {Path.cwd()} nor installed"


def _import_failure(where: str, name: str, error: BaseException) -> CommandError:
    said = f"{where}: importing {name} failed with {one_line(error)}"
    found = place_in_own_code(error)
    return CommandError(said if found is None else f"{said} ({found})")


def _attribute(where: str, module: ModuleType, name: str) -> object:
    try:
        return cast("object", getattr(module, name))
    except AttributeError as error:
        file = module.__file__
        known = module.__name__ if file is None else f"{module.__name__}, {shown_path(file)},"
        hint = _NO_REGISTRY if name == DEFAULT_REGISTRY else ""
        raise CommandError(f"{where}: the module {known} has no {name}{hint}") from error
