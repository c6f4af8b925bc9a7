"""The context of a plain `def` agent: its methods block the agent's thread."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload

from arcp_trio.runtime.job.awaitable_context import AwaitableContext
from arcp_trio.runtime.job.blocks import Child, ResultStream, ThoughtStream, ToolCall
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.files import file_of
from arcp_trio.runtime.job.job_view import JobFacts, JobView
from arcp_trio.runtime.job.link import Carrier, DistantLink
from arcp_trio.runtime.job.result_writer import Encoding
from arcp_trio.wire.json import Json
from arcp_trio.wire.lease_request import Amount

if TYPE_CHECKING:
    from _typeshed import (
        OpenBinaryModeReading,
        OpenBinaryModeUpdating,
        OpenBinaryModeWriting,
        OpenTextMode,
    )

_P = ParamSpec("_P")
_T = TypeVar("_T")


class AgentCancelled(BaseException):
    """The job of a plain `def` agent is to end: each further call of its context raises this.

    `except Exception` does not catch it. The agent has the job's grace to clean up and return.
    """


class BlockingLink(DistantLink):
    """A link whose waits block the thread, so that its coroutines never suspend."""

    async def _wait(self, future: Future[_T]) -> _T:
        return future.result()

    def task(self) -> object:
        """Return the thread that calls this."""
        return threading.current_thread()


def _finished(coroutine: Coroutine[object, None, _T]) -> _T:
    """Run a coroutine over a `BlockingLink` to its end."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: _T = stop.value
        return value
    raise AssertionError("a coroutine over a blocking link does not suspend")


def _blocking(
    method: Callable[Concatenate[AwaitableContext, _P], Coroutine[object, None, _T]],
) -> Callable[Concatenate[BlockingContext, _P], _T]:
    """Return the method of a plain `def` agent's context that does the same and blocks."""

    @wraps(method)
    def call(self: BlockingContext, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        context = self._awaitable  # pyright: ignore[reportPrivateUsage] - a method's body
        return _finished(method(context, *args, **kwargs))

    return call


class BlockingContext(JobView):
    """The argument of a plain `def` agent: a `JobContext` whose methods block.

    It may be used by several threads. Once the job is to end, or the agent has returned, each call
    raises `AgentCancelled`.
    """

    def __init__(self, carrier: Carrier, facts: JobFacts, deadline: float | None) -> None:
        super().__init__(BlockingLink(carrier), facts, deadline)
        self._awaitable = AwaitableContext(self._link, facts, deadline)

    rotate = _blocking(AwaitableContext.rotate)
    ask = _blocking(AwaitableContext.ask)

    # -- notes for later jobs

    keep = _blocking(AwaitableContext.keep)
    kept = _blocking(AwaitableContext.kept)

    # -- work that is not to be done again after a restart

    step = _blocking(AwaitableContext.step)
    call_tool = _blocking(AwaitableContext.call_tool)
    sleep = _blocking(AwaitableContext.sleep)
    sleep_until = _blocking(AwaitableContext.sleep_until)

    # -- events (§8.2)

    log = _blocking(AwaitableContext.log)
    thought = _blocking(AwaitableContext.thought)
    status = _blocking(AwaitableContext.status)
    progress = _blocking(AwaitableContext.progress)
    metric = _blocking(AwaitableContext.metric)
    artifact = _blocking(AwaitableContext.artifact)
    emit = _blocking(AwaitableContext.emit)

    # -- what is not awaited as it is

    def authorize(self, capability: str, target: str) -> None:
        """Return if the lease allows an operation, or people do where the lease says so.

        See `JobContext.authorize_or_ask`. Do it at once: what is allowed may change.
        """
        _finished(self._awaitable.authorize_or_ask(capability, target))

    def tool_call(self, tool: str, args: Json = None) -> BlockingToolCall:
        """Return the block around a tool's call: `with job.tool_call("search.web", {…}) as call:`.

        See `JobContext.tool_call`.
        """
        return BlockingToolCall(self._awaitable.tool_call(tool, args))

    @overload
    def open(
        self,
        path: str | os.PathLike[str],
        mode: OpenTextMode = "r",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> AbstractContextManager[io.TextIOWrapper]: ...

    @overload
    def open(
        self, path: str | os.PathLike[str], mode: OpenBinaryModeReading
    ) -> AbstractContextManager[io.BufferedReader]: ...

    @overload
    def open(
        self, path: str | os.PathLike[str], mode: OpenBinaryModeWriting
    ) -> AbstractContextManager[io.BufferedWriter]: ...

    @overload
    def open(
        self, path: str | os.PathLike[str], mode: OpenBinaryModeUpdating
    ) -> AbstractContextManager[io.BufferedRandom]: ...

    def open(
        self,
        path: str | os.PathLike[str],
        mode: str = "r",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> AbstractContextManager[IO[Any]]:
        """Open a regular file: `with job.open("/ws/a.txt") as file:`; see `JobContext.open`."""
        named = os.fspath(path)
        key = self._key(f"open {named} {mode}")
        return self._opened(named, mode, encoding, errors, newline, key)

    @contextmanager
    def _opened(
        self,
        path: str,
        mode: str,
        encoding: str | None,
        errors: str | None,
        newline: str | None,
        key: str | None,
    ) -> Generator[IO[Any]]:
        make = file_of(path, mode, encoding=encoding, errors=errors, newline=newline)
        with make(_finished(self._link.do(Desk.open, path, mode, None, key))) as file:
            yield file

    def delegate(
        self,
        agent: str,
        input: Json = None,  # noqa: A002 - its name on the wire
        lease: Mapping[str, Sequence[str]] | None = None,
        budget: Mapping[str, Amount] | None = None,
        expires_in: float | None = None,
        max_runtime: float | None = None,
        name: str | None = None,
    ) -> BlockingChild:
        """Give work to another agent; see `JobContext.delegate`."""
        coroutine = self._awaitable.delegate(
            agent, input, lease, budget, expires_in=expires_in, max_runtime=max_runtime, name=name
        )
        return BlockingChild(_finished(coroutine))

    def stream_thought(self) -> BlockingThoughtStream:
        """Emit what a model thinks: `with job.stream_thought() as out: out.write(…)`.

        See `JobContext.stream_thought`.
        """
        return BlockingThoughtStream(self._awaitable.stream_thought())

    def stream_result(self, encoding: Encoding = "utf8") -> BlockingResultStream:
        """Stream the result: `with job.stream_result() as out: out.write(…)`.

        See `JobContext.stream_result`.
        """
        return BlockingResultStream(self._awaitable.stream_result(encoding))


class BlockingToolCall:
    """The block around a tool's call. Set `result`; an exception becomes the call's error."""

    def __init__(self, call: ToolCall) -> None:
        self._call = call

    @property
    def id(self) -> str:
        """The call's id."""
        return self._call.id

    @property
    def result(self) -> Json:
        """The call's result, which the agent sets."""
        return self._call.result

    @result.setter
    def result(self, result: Json) -> None:
        self._call.result = result

    def __enter__(self) -> Self:
        _finished(self._call.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _finished(self._call.__aexit__(kind, error, traceback))


class BlockingResultStream:
    """`with job.stream_result() as out: out.write("…")`, and then return nothing."""

    def __init__(self, stream: ResultStream) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        _finished(self._stream.__aenter__())
        return self

    def write(self, data: str | bytes | bytearray | memoryview) -> None:
        """Add to the result; see `ResultStream.write`."""
        _finished(self._stream.write(data))

    def summarize(self, summary: str) -> None:
        """Say in words what the result is; see `ResultStream.summarize`."""
        self._stream.summarize(summary)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _finished(self._stream.__aexit__(kind, error, traceback))


class BlockingThoughtStream:
    """`with job.stream_thought() as out: out.write("…")`, a word or a token at a time."""

    def __init__(self, stream: ThoughtStream) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def write(self, text: str) -> None:
        """Go on thinking; see `ThoughtStream.write`."""
        _finished(self._stream.write(text))

    def flush(self) -> None:
        """Tell what was written and is not told yet."""
        _finished(self._stream.flush())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.flush()


class BlockingChild:
    """A delegated job, as the plain `def` agent that delegated has it."""

    def __init__(self, child: Child) -> None:
        self._child = child

    @property
    def id(self) -> str:
        """The child job's id."""
        return self._child.id

    def result(self) -> Json:
        """Block until the child's end and return its result; see `Child.result`."""
        return _finished(self._child.result())
