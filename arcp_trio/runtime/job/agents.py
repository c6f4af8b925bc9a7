"""The registry of agents: names, versions, defaults (§7.5), and where each agent runs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast, overload

import attrs

from arcp_trio.runtime.job.input_schemas import input_schema as schema_given
from arcp_trio.wire.agent_ref import AgentRef, parse_agent_ref
from arcp_trio.wire.errors import AgentNotAvailable, AgentVersionNotAvailable, InvalidRequest
from arcp_trio.wire.json import Json, JsonObject, loads
from arcp_trio.wire.json_schema import JsonSchema
from arcp_trio.wire.messages import AgentInfo

if TYPE_CHECKING:
    from arcp_trio.runtime.job.asyncio_context import AsyncioContext
    from arcp_trio.runtime.job.blocking import BlockingContext
    from arcp_trio.runtime.job.context import JobContext

AgentFunction = Callable[["JobContext"], Awaitable[Json]]
"""An agent on Trio's loop: it takes its job's context and returns the job's result."""
BlockingAgentFunction = Callable[["BlockingContext"], Json]
"""The same in a thread: a plain function."""
AsyncioAgentFunction = Callable[["AsyncioContext"], Awaitable[Json]]
"""The same under asyncio."""

DEFAULT_VERSION: Final = "1.0.0"

AgentLoop: TypeAlias = Literal["trio", "asyncio"]

_F = TypeVar("_F", bound=AgentFunction | BlockingAgentFunction)
_A = TypeVar("_A", bound=AsyncioAgentFunction)

_CONTEXTS: Final = {"trio": "JobContext", "asyncio": "AsyncioContext", None: "BlockingContext"}


def _read_schema(agent: Agent) -> JsonSchema | None:
    return None if agent.input_schema is None else JsonSchema(agent.input_schema)


@attrs.frozen
class Agent:
    """An agent in one version."""

    name: str
    version: str
    function: Callable[..., Any]
    """An `AgentFunction`, an `AsyncioAgentFunction` or a `BlockingAgentFunction`."""
    loop: AgentLoop | None = "trio"
    """The loop that the function is written for; None for a plain function."""
    process: bool | None = None
    """Whether it runs in a worker process; None leaves that to the options of `serve`."""
    durable: bool = False
    """Whether it is called again after a restart."""
    input_schema: JsonObject | None = attrs.field(default=None, hash=False)
    """What its input must be, in JSON Schema; None takes any JSON."""
    _input: JsonSchema | None = attrs.field(
        init=False, eq=False, repr=False, default=attrs.Factory(_read_schema, takes_self=True)
    )

    @property
    def ref(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    def check_input(self, data: bytes, path: str) -> None:
        """Refuse an input, as JSON, that is not what the agent takes; it stands at `path`.

        Raises:
            InvalidRequest: names what is wrong with it, and where.
        """
        problem = None if self._input is None else self._input.problem(loads(data), path)
        if problem is not None:
            raise InvalidRequest(problem)

    @property
    def contained(self) -> bool:
        """Whether the operating system holds it to the leases of its jobs, as its function says."""
        return getattr(self.function, "contained", False) is True

    @property
    def importable(self) -> str | None:
        """Where another process finds the function, as `module:name`; None if it cannot."""
        module: object = getattr(self.function, "__module__", None)
        name: object = getattr(self.function, "__qualname__", None)
        if not isinstance(module, str) or not isinstance(name, str):
            return None
        if module == "__main__" or "<" in name or inspect.ismethod(self.function):
            return None
        return f"{module}:{name}"

    @property
    def not_importable(self) -> str:
        """Why the agent cannot run in a worker process."""
        return (
            f"agent {self.ref} cannot run in a worker process, which has to import it: "
            "make it a function of a module, and not of the program that is started"
        )


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
            loop_found = _loop_of(function, loop, f"agent {name}@{version}")
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


def _loop_of(function: Callable[..., Any], loop: AgentLoop, who: str) -> AgentLoop | None:
    """Return the loop that a function is for, None for a plain function.

    Raises:
        TypeError: it is not a function, or not one for `loop`.
    """
    if isinstance(function, type) or not callable(cast("object", function)):
        raise TypeError(f"{who} is not an async function, nor a plain one")
    code = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(code)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(f"{who} is not an async function, nor a plain one, but a generator")
    if not is_async and loop == "asyncio":
        raise TypeError(f'{who} has loop="asyncio" and is not an async function')
    if not _takes_a_job(function):
        raise TypeError(f"{who} does not take one argument, its job")
    found = loop if is_async else None
    wanted = _context_named(function)
    if wanted is not None and wanted != _CONTEXTS[found]:
        raise TypeError(f"{who} gets a {_CONTEXTS[found]}, not a {wanted}: {_CURES[wanted]}")
    return found


def _takes_a_job(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # of a function in C that does not tell
        return True
    return True


_CURES: Final = {
    "JobContext": 'write async def, without loop="asyncio"',
    "AsyncioContext": 'write async def, with loop="asyncio"',
    "BlockingContext": 'write def, without loop="asyncio"',
}
"""How to write a function that gets this context."""


def _context_named(function: Callable[..., Any]) -> str | None:
    """Return the context that a function's annotation names, if it names one."""
    annotations: dict[str, object] = getattr(function, "__annotations__", {})
    first = next((value for name, value in annotations.items() if name != "return"), None)
    name = first.__name__ if isinstance(first, type) else str(first)
    name = name.rpartition(".")[2]
    return name if name in _CURES else None
