"""Calls of a context that an agent has to await: one that it forgets to is told in its job.

Python only warns of it, in the log of a process that the agent's author may never see, and the job
would succeed without what the call was for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.durable.places import here
from arcp_trio.wire.errors import ArcpError

if TYPE_CHECKING:
    from arcp_trio.runtime.job.link import Link

_P = ParamSpec("_P")
_T = TypeVar("_T")

MOST_FORGOTTEN: Final = 100
"""Calls without an `await` that one agent is told of."""


class _Linked(Protocol):
    _link: Link


_S = TypeVar("_S", bound=_Linked)
_C = TypeVar("_C", bound=_Linked)


class AwaitedCall(Coroutine[Any, Any, _T]):
    """A call that is to be awaited. It is among the calls not begun until somebody begins it."""

    __slots__ = ("_coroutine", "_not_begun")

    def __init__(
        self, coroutine: Coroutine[Any, Any, _T], name: str, not_begun: dict[AwaitedCall[Any], str]
    ) -> None:
        self._coroutine = coroutine
        self._not_begun = not_begun
        if len(not_begun) < MOST_FORGOTTEN:
            not_begun[self] = name

    def __await__(self) -> Generator[Any, Any, _T]:
        self._not_begun.pop(self, None)
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:  # noqa: ANN401 - as a coroutine has it
        """Go on."""
        self._not_begun.pop(self, None)
        return self._coroutine.send(value)

    def throw(
        self,
        kind: Any,  # noqa: ANN401 - as a coroutine has it
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:  # noqa: ANN401
        """Raise an error where the call waits."""
        self._not_begun.pop(self, None)
        if value is None and traceback is None:
            return self._coroutine.throw(kind)
        return self._coroutine.throw(kind, value, traceback)

    def close(self) -> None:
        """Give the call up, on purpose."""
        self._not_begun.pop(self, None)
        self._coroutine.close()


def awaited(
    method: Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[_S, _P], Coroutine[Any, Any, _T]]:
    """Have a job's log say if the method is called and its result is not awaited."""

    @wraps(method)
    def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> Coroutine[Any, Any, _T]:
        not_begun = self._link.not_begun  # pyright: ignore[reportPrivateUsage] - a method's body
        return AwaitedCall(
            method(self, *args, **kwargs), f"{type(self).__name__}.{method.__name__}", not_begun
        )

    return call


async def call_agent(function: Callable[[_C], Awaitable[_T]], job: _C) -> _T:
    """Call an agent's function, and tell at its end which calls it has not awaited."""
    try:
        return await function(job)
    finally:
        link = job._link  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        with suppress(ArcpError):  # the job may have ended
            await tell_forgotten(link)  # noqa: ASYNC102 - the event is there before it waits


async def tell_forgotten(link: Link) -> None:
    """Tell in the job which calls were not awaited."""
    forgotten = dict(link.not_begun)
    for call in forgotten:
        call.close()  # an agent that has kept it may still begin it, while this waits
    for name in forgotten.values():
        words = f"the agent has called {name} without await: the call has done nothing"
        body = {"level": "error", "message": words}
        await link.do(Desk.emit, "log", body, int(here(link.task()).telling))
