"""Agents that are programs: each job starts an ARCP runtime on its standard streams (§4)."""

from __future__ import annotations

import logging
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext
from typing import Final

import trio

from arcp_trio.client.connect import connect
from arcp_trio.client.dialing import Dialer
from arcp_trio.client.errors import ConnectionFailed, ConnectTimedOut, ProtocolError
from arcp_trio.proxies.forwarding import Forwarding
from arcp_trio.runtime.job.agent import AgentFunction
from arcp_trio.runtime.job.context import JobContext
from arcp_trio.runtime.limits import Limits
from arcp_trio.transport.stdio import ChildProcess, spawn
from arcp_trio.wire.errors import (
    ArcpError,
    InternalError,
    ResumeWindowExpired,
    Unauthenticated,
)
from arcp_trio.wire.json import JsonValue

log = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""How long a program may take to start and open a session; some have a lot to load."""
TERMINATE_SECONDS: Final = 0.5
"""The time between SIGTERM and SIGKILL, once the job's grace is over."""
LAST_WORDS_SECONDS: Final = 0.5
"""How long standard error is read after the program ended: another process may hold it open."""

_HELD_TO: Final = Limits()
"""A program is a stranger as a client is: these bounds of clients are its bounds, too."""

_PRINCIPAL: Final = "parent"
_PASSED_ON: Final = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR"})
_LOCALE: Final = "LC_"

_WORDS: Final[Mapping[type[Exception], str]] = {
    ConnectTimedOut: "the agent's process did not open a session in time",
    ProtocolError: "the agent's process sent what is not ARCP",
}
_ENDED: Final = "the agent's process ended"

_LOST: Final = (ConnectionFailed, ResumeWindowExpired, Unauthenticated)
"""The errors that end the session with a program; the end of its job raises `JobFailed`."""


def stdio_agent(
    command: Sequence[str],
    *,
    agent: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> AgentFunction:
    """Return an agent that is a program: an ARCP runtime on its standard input and output.

    Each job starts the program and submits the job to it, with the lease and what is left of the
    budget and the time. The program's events and its result become the job's. A cancel of
    the job cancels the program's job; at the end of the job the program's process group is ended.

    The program's standard error goes to the log. Of this process's environment it gets only PATH,
    HOME, TMPDIR and the variables for language and time zone, and in addition a token for this one
    session, in ARCP_TOKENS ("parent=…") and ARCP_TOKEN.

    Args:
        command: a program and its arguments.
        agent: `name` or `name@version` of the program's agent; by default the agent with the name
            of the job's agent, or else its only agent.
        environment: variables to add.
    """
    if isinstance(command, str):
        raise TypeError("the command must be a list: the program and its arguments")
    words, added = tuple(command), dict(environment or {})
    if not words:
        raise ValueError("the command is empty")

    async def run(job: JobContext) -> JsonValue:
        token = secrets.token_urlsafe(32)
        async with AsyncExitStack() as stack:
            starting = spawn(
                words,
                max_bytes=_HELD_TO.frame_bytes_in,
                first_bytes=_HELD_TO.first_frame_bytes,
                environment=_environment(token) | added,
                keep_stderr=True,
            )
            try:
                child = await stack.enter_async_context(starting)
            except OSError as error:
                facts = {"job_id": job.id, "agent": job.agent, "program": words[0]}
                log.error("program cannot be started", extra=facts | {"why": str(error)})  # noqa: TRY400
                raise InternalError("the agent's process cannot be started") from error
            return await _Program(job, child, token, agent).run()

    return run


def _environment(token: str) -> dict[str, str]:
    passed_on = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(_LOCALE)
    }
    return passed_on | {"ARCP_TOKENS": f"{_PRINCIPAL}={token}", "ARCP_TOKEN": token}


class _Program:
    """The program of one job, and the conversation with it.

    The conversation is shielded, as a cancelled job still has to cancel the program's.
    """

    def __init__(self, job: JobContext, child: ChildProcess, token: str, agent: str | None) -> None:
        self._job = job
        self._child = child
        self._token = token
        self._agent = agent
        self._facts = {"job_id": job.id, "agent": job.agent}
        self._life = trio.CancelScope(shield=True)
        self._watch = trio.CancelScope()
        self._forwarding: Forwarding | None = None
        self._result: JsonValue = None
        self._failure: Exception | None = None

    async def run(self) -> JsonValue:
        """Have the program do the job, end it, and return the result."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._mind_cancellation, name="cancellation of a program")
            with self._life:
                await self._live()
            nursery.cancel_scope.cancel(reason="the program has ended")
        await trio.lowlevel.checkpoint()  # raises Cancelled if the job is cancelled
        if isinstance(self._failure, _LOST):
            raise self._lost(self._failure) from self._failure
        if self._failure is not None:
            raise self._failure
        return self._result

    async def _mind_cancellation(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if self._forwarding is None:
                self._life.cancel(reason="the job is cancelled before the program got it")
            else:
                self._forwarding.stop()

    async def _live(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._kill_once_over, name="end of a program")
            nursery.start_soon(self._log_errors, name="errors of a program")
            try:
                self._result = await self._converse()
            except Exception as error:  # noqa: BLE001 - raised again outside of the nurseries
                self._failure = error
            finally:
                await self._child.end()  # noqa: ASYNC102 - bounds and shields itself
                self._watch.cancel(reason="the program has ended")
                nursery.cancel_scope.deadline = trio.current_time() + LAST_WORDS_SECONDS

    async def _converse(self) -> JsonValue:
        dialer = Dialer(
            lambda: nullcontext(self._child.transport), again=False, seconds=START_SECONDS
        )
        async with AsyncExitStack() as stack:
            # Chunks of a result are passed on as they come, so the client keeps none.
            connecting = connect(dialer, token=self._token, max_result_bytes=0)
            try:
                client = await stack.enter_async_context(connecting)
            except ArcpError as refusal:
                log.error("program refuses the session", extra=self._facts | {"why": str(refusal)})  # noqa: TRY400
                raise InternalError("the agent's process refused the session") from refusal
            self._forwarding = Forwarding(self._job, client)
            return await self._forwarding.run(self._agent)

    async def _kill_once_over(self) -> None:
        """Wait until the job is over, and then end the program if it has not ended by then."""
        with self._watch:
            await self._job.over()
            if self._forwarding is not None:
                self._forwarding.abandon()
            self._child.signal(signal.SIGTERM)
            await trio.sleep(TERMINATE_SECONDS)
            self._child.signal(signal.SIGKILL)

    async def _log_errors(self) -> None:
        await self._child.read_errors(
            lambda line: log.info("program says: %s", line, extra=self._facts)
        )

    def _lost(self, failure: Exception) -> InternalError:
        log.error(
            "program lost",
            extra=self._facts | {"why": str(failure), "exit_status": self._child.returncode},
        )
        return InternalError(_WORDS.get(type(failure), _ENDED))
