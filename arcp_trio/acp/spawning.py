"""Starting a program that speaks ACP, and saying how it has ended."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

import trio

from arcp_trio.acp.agent import Agent
from arcp_trio.acp.connecting import DEFAULT_LIMITS, speaking
from arcp_trio.acp.errors import AgentGone
from arcp_trio.acp.limits import Limits
from arcp_trio.acp.queue import Handlers
from arcp_trio.acp.requests import (
    FileRequest,
    Handler,
    PermissionRequest,
    TerminalRequest,
    refuse,
)
from arcp_trio.acp.session import UpdateHandler
from arcp_trio.nurseries import tasks_beside
from arcp_trio.transport import stdio
from arcp_trio.under_trio import need_trio
from arcp_trio.wire.errors import clip
from arcp_trio.wire.json import Json

log = logging.getLogger(__name__)

_PASSED_ON: Final = frozenset(
    {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "TERM", "USER", "LOGNAME", "SHELL"}
)
_LOCALE: Final = "LC_"
ErrorHandler: TypeAlias = Callable[[str], object]
"""What takes lines of an agent's standard error."""


@asynccontextmanager
async def spawn(
    command: Sequence[str],
    *,
    cwd: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    permission: Handler[PermissionRequest] = refuse,
    files: Handler[FileRequest] = None,
    terminals: Handler[TerminalRequest] = None,
    on_update: UpdateHandler | None = None,
    on_stderr: ErrorHandler | None = None,
    limits: Limits = DEFAULT_LIMITS,
    client_info: Mapping[str, Json] | None = None,
) -> AsyncGenerator[Agent, None]:
    """Start a program that speaks ACP, for the length of the block.

    Leaving the block ends the program: its input is closed, then its process group gets SIGTERM,
    then SIGKILL.

    `permission`, `files` and `terminals` are each an async function of a request; or `STREAM`, and
    requests are seen in the stream of the turn; or None, and the agent is told that this is not
    offered.

    Args:
        command: a program and its arguments.
        cwd: the folder that the program starts in, by default that of this process.
        environment: the program's variables, by default those that say where and for whom it runs,
            such as PATH, HOME and LANG.
        permission: decides what the agent asks permission for.
        files: reads and writes files for the agent.
        terminals: runs commands for the agent.
        on_update: called with each session and update, one at a time for each session, in order.
        on_stderr: called with each line of the program's standard error, which is read in any case.
        limits: bounds on what the agent sends, and on how long it takes.
        client_info: the program's `name` and `version`, for the agent.

    Raises:
        OSError: the program cannot be started.
        AcpFailure: the agent cannot be spoken with; a subclass says why.
        RuntimeError: the program does not run under Trio.
    """
    if isinstance(command, str):
        raise TypeError("the command must be a list: the program and its arguments")
    need_trio("arcp_trio.acp.spawn")
    handlers = Handlers(permission, files, terminals, on_update)
    name = Path(command[0]).name
    starting = stdio.spawn(
        command,
        max_bytes=limits.line_bytes,
        cwd=cwd,
        environment=own_environment() if environment is None else environment,
        keep_stderr=True,
        leave_seconds=limits.leave_seconds,
        terminate_seconds=limits.terminate_seconds,
    )
    async with (
        starting as child,
        speaking_with(child, name, handlers, limits, on_stderr, client_info) as agent,
    ):
        yield agent


@asynccontextmanager
async def speaking_with(
    child: stdio.ChildProcess,
    name: str,
    handlers: Handlers,
    limits: Limits,
    on_stderr: ErrorHandler | None = None,
    client_info: Mapping[str, Json] | None = None,
) -> AsyncGenerator[Agent, None]:
    """Speak with a program for the length of the block; the caller has started it and ends it."""
    program = _AgentProgram(child, name, on_stderr, limits)
    async with tasks_beside() as nursery:
        nursery.start_soon(program.read_errors, name="errors of an ACP agent")
        async with speaking(child.transport, program, handlers, limits, client_info) as agent:
            yield agent


class _AgentProgram:
    """An agent's process, from outside: its errors, and its end."""

    def __init__(
        self,
        child: stdio.ChildProcess,
        name: str,
        on_stderr: ErrorHandler | None,
        limits: Limits,
    ) -> None:
        self.name: Final = name
        self._child = child
        self._on_stderr = on_stderr
        self._limits = limits
        self._last_words = ""
        self._errors_read = trio.Event()

    async def exited(self) -> None:
        """Wait until the process has exited."""
        await self._child.wait()

    async def explain(self) -> AgentGone:
        """Say how the process has ended, with the last line of its standard error."""
        with trio.move_on_after(self._limits.leave_seconds):
            await self._child.wait()
            await self._errors_read.wait()  # another process may hold it open
        words = f": {clip(self._last_words, 300)}" if self._last_words else ""
        return AgentGone(
            f"{self.name} {_how_it_ended(self._child.returncode)}{words}", self._child.returncode
        )

    async def read_errors(self) -> None:
        """Read standard error, so that the program is not held up."""
        await self._child.read_errors(self._take_error)
        self._errors_read.set()

    def _take_error(self, line: str) -> None:
        self._last_words = line
        if self._on_stderr is not None:
            try:
                self._on_stderr(line)
            except Exception:
                log.exception("handler of standard error failed", extra={"agent": self.name})


def _how_it_ended(status: int | None) -> str:
    if status is None:
        return "has closed its output, and has not exited"
    if status >= 0:
        return f"has exited with status {status}"
    known = -status in {each.value for each in signal.Signals}
    return f"was ended by {signal.Signals(-status).name if known else f'signal {-status}'}"


def own_environment() -> dict[str, str]:
    """Return the variables of this process that say where and for whom a program runs."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(_LOCALE)
    }
