"""The registry of agents: names, versions, defaults (§7.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar, overload

import attrs

from arcp_trio.runtime.job.agent import (
    Agent,
    AgentFunction,
    AgentLoop,
    AsyncioAgentFunction,
    BlockingAgentFunction,
    loop_of,
)
from arcp_trio.runtime.job.input_schemas import input_schema as schema_given
from arcp_trio.wire.agent_ref import AgentRef, parse_agent_ref
from arcp_trio.wire.errors import AgentNotAvailable, AgentVersionNotAvailable, InvalidRequest
from arcp_trio.wire.json import Json, JsonObject
from arcp_trio.wire.messages import AgentInfo

DEFAULT_VERSION: Final = "1.0.0"

_F = TypeVar("_F", bound=AgentFunction | BlockingAgentFunction)
_A = TypeVar("_A", bound=AsyncioAgentFunction)


class Agents:
    """A registry of agents, by name and version.

    `arcp-trio serve --agents MODULE` serves the registry that a module has under the name `agents`.
    A name's default version is the one marked as such, else the one registered last.
    """

    def __init__(self) -> None:
        self._versions: dict[str, dict[str, Agent]] = {}
        self._defaults: dict[str, str] = {}

    @overload
    def agent(
        self,
        name: str,
        *,
        version: str = DEFAULT_VERSION,
        default: bool = False,
        loop: Literal["trio"] = "trio",
        process: bool | None = None,
        durable: bool = False,
        input_schema: Mapping[str, Json] | type[Any] | None = None,
    ) -> Callable[[_F], _F]: ...

    @overload
    def agent(
        self,
        name: str,
        *,
        version: str = DEFAULT_VERSION,
        default: bool = False,
        loop: Literal["asyncio"],
        process: bool | None = None,
        durable: bool = False,
        input_schema: Mapping[str, Json] | type[Any] | None = None,
    ) -> Callable[[_A], _A]: ...

    def agent(
        self,
        name: str,
        *,
        version: str = DEFAULT_VERSION,
        default: bool = False,
        loop: AgentLoop = "trio",
        process: bool | None = None,
        durable: bool = False,
        input_schema: Mapping[str, Json] | type[Any] | None = None,
    ) -> Callable[[Any], Any]:
        """Register the function below as an agent.

        An `async def` runs on Trio, in the runtime's own loop: it must not block. A plain `def`
        runs in a thread, with a `BlockingContext`. With `loop="asyncio"`, an `async def` runs under
        asyncio in a thread, with an `AsyncioContext`.

        With `process=True` any of the three runs in a worker process, which imports the module that
        the function stands in; `process=False` keeps it in this one, whatever `serve` is told.

        With `durable=True` its jobs survive the runtime: after a restart the agent is called again,
        and what it did in steps (`JobContext.step`) is not done again.

        With `input_schema`, a JSON Schema or an attrs class from which one is made, an input that
        does not match is refused before there is a job, and clients are told what the agent takes.

        Raises:
            ValueError: name and version are not of the grammar of §7.5, or are taken; or the schema
                has a keyword that is not checked here.
            TypeError: this is not a function, or not one for that loop, or for a process; or there
                is no schema for the class.
        """
        if callable(name):
            raise TypeError('name the agent: @runtime.agent("name") above its function')
        _check_name(name, version)
        if loop not in ("trio", "asyncio"):
            raise ValueError(f'loop must be "trio" or "asyncio", not {loop!r}')
        schema = _schema_of(f"agent {name}@{version}", input_schema)

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            loop_found = loop_of(function, loop, f"agent {name}@{version}")
            agent = Agent(name, version, function, loop_found, process, durable, schema)
            if process and agent.importable is None:
                raise TypeError(agent.not_importable)
            self._register(agent, default=default)
            return function

        return register

    def _register(self, agent: Agent, *, default: bool) -> None:
        versions = self._versions.setdefault(agent.name, {})
        if agent.version in versions:
            raise ValueError(f"agent {agent.ref} is registered already")
        if default and agent.name in self._defaults:
            raise ValueError(
                f"agent {agent.name} has a default already: {self._defaults[agent.name]}"
            )
        versions[agent.version] = agent
        if default:
            self._defaults[agent.name] = agent.version

    def add(self, other: Agents) -> None:
        """Register everything that another registry has."""
        for name, versions in other._versions.items():
            for agent in versions.values():
                self._register(agent, default=other._defaults.get(name) == agent.version)

    def in_processes(self) -> Agents:
        """Return these agents, with `process=True` for each that does not say where it runs.

        Raises:
            TypeError: one of them cannot be imported by another process.
        """
        found = Agents()
        for name, versions in self._versions.items():
            for agent in versions.values():
                moved = attrs.evolve(agent, process=agent.process is not False)
                if moved.process and moved.importable is None:
                    raise TypeError(moved.not_importable)
                found._register(moved, default=self._defaults.get(name) == agent.version)
        return found

    def __iter__(self) -> Iterator[Agent]:
        return (agent for versions in self._versions.values() for agent in versions.values())

    def modules(self) -> frozenset[str]:
        """Return the modules that worker processes import."""
        places = (agent.importable for agent in self if agent.process)
        return frozenset(place.partition(":")[0] for place in places if place is not None)

    def durable(self) -> tuple[str, ...]:
        """Return the agents whose jobs survive the runtime, as `name@version`."""
        return tuple(agent.ref for agent in self if agent.durable)

    @property
    def count(self) -> int:
        """How many are registered, each version by itself; none is ever removed."""
        return sum(map(len, self._versions.values()))

    def names(self) -> tuple[str, ...]:
        """Return the names that are taken, in the order of their registration."""
        return tuple(self._versions)

    def resolve(self, text: str) -> Agent:
        """Return the agent that `name` or `name@version` refers to.

        Raises:
            InvalidRequest: the reference is malformed.
            AgentNotAvailable: there is no agent of that name.
            AgentVersionNotAvailable: the agent has no such version.
        """
        ref = parse_agent_ref(text)
        versions = self._versions.get(ref.name)
        if versions is None:
            raise AgentNotAvailable(f"there is no agent {ref.name}")
        agent = versions.get(self.default(ref.name) if ref.version is None else ref.version)
        if agent is None:
            raise AgentVersionNotAvailable(f"agent {ref.name} has no version {ref.version}")
        return agent

    def default(self, name: str) -> str:
        """Return the version that the bare name refers to."""
        return self._defaults.get(name) or next(reversed(self._versions[name]))

    def input_schemas(self) -> dict[str, JsonObject]:
        """Return what inputs must be, by `name@version`, of the agents that say so."""
        return {agent.ref: agent.input_schema for agent in self if agent.input_schema is not None}

    def inventory(self) -> list[AgentInfo]:
        """Return what a welcome tells a client that negotiated `agent_versions` (§6.2)."""
        return [
            AgentInfo(
                name=name,
                versions=list(versions),
                default=self.default(name),
                durable=[each.version for each in versions.values() if each.durable] or None,
            )
            for name, versions in self._versions.items()
        ]


def _check_name(name: str, version: str) -> None:
    try:
        ref = parse_agent_ref(f"{name}@{version}")
    except InvalidRequest as error:
        raise ValueError(error.message) from None
    if ref != AgentRef(name, version):
        raise ValueError(f"{name!r} and {version!r} are not an agent name and version")


def _schema_of(who: str, given: Mapping[str, Json] | type[Any] | None) -> JsonObject | None:
    if given is None:
        return None
    try:
        return schema_given(given)
    except (ValueError, TypeError) as error:
        raise type(error)(f"the input_schema of {who}: {error}") from None
