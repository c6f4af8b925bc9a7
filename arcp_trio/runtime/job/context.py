"""What an agent on Trio's loop sees of its job, and what it can do there."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import IO, TYPE_CHECKING, Any, Final, overload

import trio

from arcp_trio.runtime.job.awaitable_context import AwaitableContext
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.files import file_of
from arcp_trio.wire.json import Json

if TYPE_CHECKING:
    from _typeshed import (
        OpenBinaryModeReading,
        OpenBinaryModeUpdating,
        OpenBinaryModeWriting,
        OpenTextMode,
    )
    from trio._file_io import AsyncIOWrapper

    from arcp_trio.authority.authority import Authority
    from arcp_trio.runtime.job.link import Link

CLOSE_SECONDS: Final = 10.0
"""How long closing a file may take: what is buffered is written then."""


class JobContext(AwaitableContext):
    """The argument of an agent's function on Trio's loop; its methods add events to the job.

    Most calls return without letting other tasks run: an agent that emits in a tight loop does so
    only every few dozen events.
    """

    async def ask_approval(
        self,
        call_id: str,
        tool: str,
        args: Json,
        capability: str,
        targets: Sequence[str],
        shown: Mapping[str, Json] | None = None,
    ) -> None:
        """Ask people for leave to do what the lease allows on that condition; see `decision`.

        Args:
            call_id: the id of the tool call that waits for the decision; it was told already.
            tool: its tool.
            args: its arguments, for people to read.
            capability: what is asked for, such as `fs.write`.
            targets: what it is asked for; `x-vendor.arcp-trio.ask.…` allows each.
            shown: what else people see: `cwd`, the folder; `command`, the line that would run; and
                `changes`, a list of `path`, `diff` and `note`, which says what the diff leaves out.

        Raises:
            PermissionDenied: the lease does not allow it, whatever people say; or the client that
                submitted the job knows no questions.
            InternalError: the job asks too much at once, or is ending.
        """
        await self._link.do(Desk.ask_approval, call_id, tool, args, capability, targets, shown)

    async def decision(self, call_id: str) -> Mapping[str, Json]:
        """Wait for what people decide, and return if the operation is allowed: do it at once.

        Returns:
            What the `tool_result` of the call is to say beside its own: `decision`, `by` and, if
            one was given, the `reason`.

        Raises:
            PermissionDenied: somebody has denied it; the details say what is returned otherwise.
            Unanswered: nobody has decided in time.
            LeaseExpired, BudgetExhausted: the lease does not allow it any longer.
        """
        return await self._link.do(Desk.decision, call_id)

    def approved(self, capability: str) -> Sequence[str]:
        """Return what people have allowed of a capability for as long as the job runs."""
        return self._link.ask(Desk.approved, capability)

    @overload
    def open(
        self,
        path: str | os.PathLike[str],
        mode: OpenTextMode = "r",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        approved: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[io.TextIOWrapper]]: ...

    @overload
    def open(
        self,
        path: str | os.PathLike[str],
        mode: OpenBinaryModeReading,
        *,
        approved: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[io.BufferedReader]]: ...

    @overload
    def open(
        self,
        path: str | os.PathLike[str],
        mode: OpenBinaryModeWriting,
        *,
        approved: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[io.BufferedWriter]]: ...

    @overload
    def open(
        self,
        path: str | os.PathLike[str],
        mode: OpenBinaryModeUpdating,
        *,
        approved: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[io.BufferedRandom]]: ...

    def open(
        self,
        path: str | os.PathLike[str],
        mode: str = "r",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        approved: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[IO[Any]]]:
        """Open a regular file as Trio's async file: `async with job.open("/ws/a.txt") as file:`.

        Needs `fs.read` for `r`, `fs.write` for `w`, `a` and `x`, and both with `+`: for the path
        and for the real path that its links lead to. The file that is opened is the one that was
        authorised, even if the path changes meanwhile. The parameters are those of Python's `open`,
        beside `approved`: the id of the tool call whose approval by a person allows it.

        Raises:
            LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it, or the
                path is not a regular file.
            OSError: the file cannot be opened.
        """
        return _opened(self._link, os.fspath(path), mode, encoding, errors, newline, approved)


def authority_behind(job: JobContext) -> Authority:
    """Return what a job may do, as the runtime checks it; for agents in the runtime's own loop."""
    return job._link.ask(Desk.authority)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


@asynccontextmanager
async def _opened(
    link: Link,
    path: str,
    mode: str,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
    approved: str | None,
) -> AsyncGenerator[AsyncIOWrapper[IO[Any]], None]:
    make = file_of(path, mode, encoding=encoding, errors=errors, newline=newline)
    file = make(await link.do(Desk.open, path, mode, approved))
    try:
        yield trio.wrap_file(file)
    finally:
        # Raises when it takes too long: the agent must not believe that all is in the file.
        # A limiter of its own, so that there is always a thread for it.
        with trio.fail_after(CLOSE_SECONDS, shield=True):
            await trio.to_thread.run_sync(
                file.close, abandon_on_cancel=True, limiter=trio.CapacityLimiter(1)
            )
