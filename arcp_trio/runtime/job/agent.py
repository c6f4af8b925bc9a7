"""An agent: a function that does the work of jobs, and the loop that it is written for."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import attrs

from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.json import Json, JsonObject, loads
from arcp_trio.wire.json_schema import JsonSchema

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

AgentLoop: TypeAlias = Literal["trio", "asyncio"]


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


# -- which loop a function is for

_CONTEXTS: Final = {"trio": "JobContext", "asyncio": "AsyncioContext", None: "BlockingContext"}


def loop_of(function: Callable[..., Any], loop: AgentLoop, who: str) -> AgentLoop | None:
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
