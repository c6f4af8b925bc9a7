"""The context of an agent that runs under asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, AnyStr, Generic, Self, TypeVar, overload

from arcp_trio.runtime.job.awaitable_context import AwaitableContext
from arcp_trio.runtime.job.context import CLOSE_SECONDS
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.files import file_of
from arcp_trio.runtime.job.job_view import JobFacts
from arcp_trio.runtime.job.link import Carrier, DistantLink

if TYPE_CHECKING:
    from _typeshed import OpenBinaryMode, OpenTextMode

_T = TypeVar("_T")


class AsyncioLink(DistantLink):
    """A link whose waits are asyncio's."""

    async def _wait(self, future: Future[_T]) -> _T:
        return await asyncio.wrap_future(future)

    def task(self) -> object:
        """Return the task that calls this."""
        return asyncio.current_task()


class AsyncioContext(AwaitableContext):
    """The argument of an agent with `loop="asyncio"`: what `JobContext` is to one on Trio.

    When the job is to end, the agent's task is cancelled as asyncio does it: `CancelledError` is
    raised in it once. The agent then has the job's grace to clean up and return.
    """

    def __init__(self, carrier: Carrier, facts: JobFacts, deadline: float | None) -> None:
        super().__init__(AsyncioLink(carrier), facts, deadline)

    @overload
    def open(
        self,
        path: str | os.PathLike[str],
        mode: OpenTextMode = "r",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncioFile[str]]: ...

    @overload
    def open(
        self, path: str | os.PathLike[str], mode: OpenBinaryMode
    ) -> AbstractAsyncContextManager[AsyncioFile[bytes]]: ...

    def open(
        self,
        path: str | os.PathLike[str],
        mode: str = "r",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncioFile[Any]]:
        """Open a regular file: `async with job.open("/ws/a.txt") as file:`.

        The methods of `file` are awaited: `await file.read()`. See `JobContext.open`.
        """
        named = os.fspath(path)
        key = self._key(f"open {named} {mode}")
        return self._opened(named, mode, encoding, errors, newline, key)

    @asynccontextmanager
    async def _opened(
        self,
        path: str,
        mode: str,
        encoding: str | None,
        errors: str | None,
        newline: str | None,
        key: str | None,
    ) -> AsyncGenerator[AsyncioFile[Any], None]:
        make = file_of(path, mode, encoding=encoding, errors=errors, newline=newline)
        file = make(await self._link.do(Desk.open, path, mode, None, key))
        try:
            yield AsyncioFile(file)
        finally:
            # Raises when it takes too long: the agent must not believe that all is in the file.
            closing = asyncio.to_thread(file.close)
            await asyncio.wait_for(asyncio.shield(closing), CLOSE_SECONDS)


class AsyncioFile(Generic[AnyStr]):
    """A file whose methods are awaited under asyncio; each runs in a thread."""

    def __init__(self, file: IO[AnyStr]) -> None:
        self._file: IO[AnyStr] = file

    @property
    def wrapped(self) -> IO[AnyStr]:
        """The file itself, whose methods block."""
        return self._file

    async def read(self, size: int = -1) -> AnyStr:
        """Read up to `size` characters or bytes, by default to the end."""
        return await asyncio.to_thread(self._file.read, size)

    async def readline(self, size: int = -1) -> AnyStr:
        """Read a line, with its end."""
        return await asyncio.to_thread(self._file.readline, size)

    async def readlines(self) -> list[AnyStr]:
        """Read all lines."""
        return await asyncio.to_thread(self._file.readlines)

    async def write(self, data: AnyStr) -> int:
        """Write, and return how much was written."""
        write: Callable[[AnyStr], int] = self._file.write
        return await asyncio.to_thread(write, data)

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position."""
        return await asyncio.to_thread(self._file.seek, offset, whence)

    async def tell(self) -> int:
        """Return the position."""
        return await asyncio.to_thread(self._file.tell)

    async def truncate(self, size: int | None = None) -> int:
        """Cut the file off, by default at the position."""
        return await asyncio.to_thread(self._file.truncate, size)

    async def flush(self) -> None:
        """Write out what is buffered."""
        await asyncio.to_thread(self._file.flush)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyStr:
        line = await self.readline()
        if not line:
            raise StopAsyncIteration
        return line
