"""The registry of agents: names, versions, defaults (§7.5)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import attrs

from arcp_trio.wire.agent_ref import AgentRef, parse_agent_ref
from arcp_trio.wire.errors import AgentNotAvailable, AgentVersionNotAvailable
from arcp_trio.wire.json import Json
from arcp_trio.wire.messages import AgentInfo

if TYPE_CHECKING:
    from arcp_trio.runtime.job.context import JobContext

AgentFunction = Callable[["JobContext"], Awaitable[Json]]
"""An agent: it takes its job's context and returns the job's result."""

_F = TypeVar("_F", bound=AgentFunction)


@attrs.frozen
class Agent:
    """An agent in one version."""

    name: str
    version: str
    function: AgentFunction

    @property
    def ref(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"


class Agents:
    """A registry of agents, by name and version.

    `arcp-trio serve --agents MODULE` serves the registry that a module has under the name `agents`.
    A name's default version is the one marked as such, else the one registered last.
    """

    def __init__(self) -> None:
        self._versions: dict[str, dict[str, Agent]] = {}
        self._defaults: dict[str, str] = {}

    def agent(
        self, name: str, *, version: str = "1.0.0", default: bool = False
    ) -> Callable[[_F], _F]:
        """Register the async function below as an agent.

        Raises:
            ValueError: name and version are not of the grammar of §7.5, or are taken.
            TypeError: the function is not an async one.
        """
        ref = AgentRef(name, version)
        if parse_agent_ref(f"{name}@{version}") != ref:
            raise ValueError(f"{name!r} and {version!r} are not an agent name and version")

        def register(function: _F) -> _F:
            self._register(Agent(name, version, function), default=default)
            return function

        return register

    def _register(self, agent: Agent, *, default: bool) -> None:
        if not inspect.iscoroutinefunction(agent.function):
            raise TypeError(f"agent {agent.ref} is not an async function")
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

    def inventory(self) -> list[AgentInfo]:
        """Return what a welcome tells a client that negotiated `agent_versions` (§6.2)."""
        return [
            AgentInfo(name=name, versions=list(versions), default=self.default(name))
            for name, versions in self._versions.items()
        ]
