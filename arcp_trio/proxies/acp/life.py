"""The life of a job's program, from its start to its end, with one prompt in between."""

from __future__ import annotations

import logging
import math
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Final

import trio

from arcp_trio import acp
from arcp_trio.acp.queue import Handlers
from arcp_trio.acp.spawning import speaking_with
from arcp_trio.nurseries import tasks_beside
from arcp_trio.proxies.acp.allowed import AllowedEdits
from arcp_trio.proxies.acp.calls import Calls
from arcp_trio.proxies.acp.conversation import AgentConversation
from arcp_trio.proxies.acp.deciding import Requests
from arcp_trio.proxies.acp.ends import end_of_agent, end_of_turn, late
from arcp_trio.proxies.acp.input import Content
from arcp_trio.proxies.acp.mapping import Item, Ready, UpdateEvents
from arcp_trio.proxies.acp.outside import OutsideItems
from arcp_trio.proxies.acp.workplace import Workplace
from arcp_trio.runtime.job.fitting import MOST_NAME
from arcp_trio.transport import stdio
from arcp_trio.wire.errors import ArcpError, BudgetExhausted, clip
from arcp_trio.wire.json import JsonObject, JsonValue, text_in

log = logging.getLogger(__name__)

LAST_UPDATES_SECONDS: Final = 10.0
"""How long an agent that is told to stop may take for its answer, if the job's grace allows it."""
CLOSE_SECONDS: Final = 5.0
"""How long it may take to close what the agent has open."""
ERROR_BYTES: Final = 1024 * 1024
"""About as much of one program's standard error goes to the log."""

_SIGNALS: Final = ((0.6, signal.SIGTERM), (0.75, signal.SIGKILL))
"""What the program is sent after which part of the job's grace, if it has not ended by then."""


class AgentLife:
    """The program of one job, from its start to its end.

    All of it is shielded, as the program of a job that is cancelled still has to be told.
    """

    def __init__(
        self,
        conversation: AgentConversation,
        command: Sequence[str],
        place: Workplace,
        mcp_servers: acp.McpServers,
        settle_seconds: float,
    ) -> None:
        self._job = job = conversation.job
        self._conversation = conversation
        self._command = command
        self._place = place
        self._mcp_servers = mcp_servers
        self._settle_seconds = settle_seconds
        self._limits = job.limits
        self._facts = {"job_id": job.id, "agent": job.agent}
        self._calls = Calls(job)
        self._edits = AllowedEdits(job, place)
        self._events = UpdateEvents(job, self._calls, self._edits, conversation)
        self._outside = OutsideItems(self._take, replays=conversation.continued)
        self._scope = trio.CancelScope(shield=True)
        self._minding = trio.CancelScope(shield=True)
        self._asked = "initialize"
        """The request that the agent has to answer for its turn to begin."""
        self._child: stdio.ChildProcess | None = None
        self._logins: Sequence[JsonObject] = ()
        self._requests: Requests | None = None
        self._turn: acp.Turn | None = None
        self._turn_over = trio.Event()
        self._stopping = trio.Event()
        self._over = False
        self._result: JsonValue = None
        self._failure: ArcpError | None = None
        self._logged = 0

    async def run(self, prompt: Content) -> JsonValue:
        """Have the program do the job, end it, and return the result."""
        async with tasks_beside() as nursery:
            nursery.start_soon(self._mind_cancellation, name="cancellation of an ACP agent")
            nursery.start_soon(self._mind_the_end, name="end of an ACP agent")
            try:
                with self._scope:
                    self._scope.deadline = trio.current_time() + self._limits.agent_start_seconds
                    await self._live(prompt)
            finally:
                self._over = True
                self._minding.cancel(reason="the program has ended")
        await trio.lowlevel.checkpoint()  # raises Cancelled if the job is cancelled
        if self._failure is None and self._scope.cancelled_caught:
            self._failure = late(self._job.agent, self._asked)
        if self._failure is not None:
            raise self._failure
        return self._result

    # -- the end

    def _stop(self) -> None:
        """Have the agent end its turn; what it still tells is passed on."""
        self._stopping.set()
        if self._turn is None:
            self._scope.cancel(reason="the job is over before the agent was prompted")
        else:
            self._turn.stop()

    async def _mind_cancellation(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            if not self._over:
                self._stop()

    async def _mind_the_end(self) -> None:
        with self._minding:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._mind_stopping, name="stopping of an ACP agent")
                await self._job.over()
                # The job could not wait for the program.
                self._signal(signal.SIGKILL)
                self._scope.cancel(reason="the job is over")

    async def _mind_stopping(self) -> None:
        """Bound the time of a program that is told to stop by the grace of the job."""
        await self._stopping.wait()
        begun, grace = trio.current_time(), self._job.grace
        with trio.move_on_at(begun + min(LAST_UPDATES_SECONDS, grace / 2)):
            if self._requests is not None:
                await self._requests.close()
            await self._turn_over.wait()
        self._scope.cancel(reason="the agent does not stop")
        for part, number in _SIGNALS:
            await trio.sleep_until(begun + part * grace)
            self._signal(number)

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.signal(number)

    # -- the program

    async def _live(self, prompt: Content) -> None:
        await self._job.status(
            "starting", "contained" if self._place.contained else "not contained"
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._place.serving())
            try:
                self._child = await stack.enter_async_context(self._start())
            except OSError as error:
                raise self._failed(error) from error
            try:
                async with self._speaking(self._child) as agent, tasks_beside() as nursery:
                    await self._converse(agent, prompt, nursery)
            except acp.AcpFailure as failure:
                raise self._failed(failure) from failure

    def _start(self) -> AbstractAsyncContextManager[stdio.ChildProcess]:
        return stdio.spawn(
            _runnable(self._command, self._place.environment),
            max_bytes=self._limits.agent_line_bytes,
            cwd=self._place.cwd,
            environment=self._place.environment,
            keep_stderr=True,
            start=self._place.start,
        )

    def _speaking(self, child: stdio.ChildProcess) -> AbstractAsyncContextManager[acp.Agent]:
        seconds = self._limits.agent_start_seconds
        bounds = acp.Limits(
            line_bytes=self._limits.agent_line_bytes,
            requests=self._limits.agent_requests,
            start_seconds=seconds,
            request_seconds=seconds,
        )
        handlers = Handlers(acp.STREAM, acp.STREAM, acp.STREAM, None, self._outside.put)
        return speaking_with(child, self._command[0], handlers, bounds, self._log_error)

    async def _converse(self, agent: acp.Agent, prompt: Content, nursery: trio.Nursery) -> None:
        self._edits.program = self._child
        self._logins = agent.auth_methods
        self._requests = Requests(
            self._job, self._calls, nursery, self._place, self._edits, self._limits
        )
        continued = self._conversation.continued
        self._asked = "session/resume or session/load" if continued else "session/new"
        session = await self._conversation.open(agent, self._place.cwd, self._mcp_servers)
        self._scope.deadline = math.inf
        await self._tell_session(agent)
        await self._outside.tell_early()
        self._turn = self._outside.turn = session.prompt(prompt)
        try:
            if self._stopping.is_set():
                self._turn.stop()
            await self._follow(self._turn)
        finally:
            self._turn_over.set()
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                with suppress(ArcpError):  # the job may have ended
                    await self._events.flush()
                await self._requests.close()
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._edits.close()
        await self._finish(self._turn)

    async def _tell_session(self, agent: acp.Agent) -> None:
        named = (text_in(agent.info.get(each)) for each in ("name", "version"))
        message = clip(" ".join(filter(None, named)) or self._job.agent, MOST_NAME)
        body: JsonObject = {"phase": "session", "message": message}
        body |= {"session": self._conversation.root, "continued": self._conversation.continued}
        await self._job.emit("status", body)

    async def _follow(self, turn: acp.Turn) -> None:
        async for each in turn:
            item: Item | None = each
            while item is not None:
                item = await self._take(item, turn.ready)

    async def _take(self, item: Item, ready: Ready = lambda: None) -> Item | None:
        """Pass on what the agent tells, or decide what it asks for; return what comes after it."""
        if isinstance(item, acp.Request):
            assert self._requests is not None, "there are requests after the session has begun"
            await self._events.flush()
            await self._requests.take(item)
            return None
        try:
            return await self._events.take(item, ready)
        except BudgetExhausted as error:
            self._failure = self._failure or error
            self._stop()
            return None

    async def _finish(self, turn: acp.Turn) -> None:
        if self._settle_seconds and not self._stopping.is_set():
            await self._outside.tell_late(self._settle_seconds)
            await self._events.flush()
        if not self._stopping.is_set():
            for words in self._edits.problems:
                await self._job.log(words, "warn")
        if self._failure is None and not self._stopping.is_set():
            assert turn.stop_reason is not None, "a turn without one raises its failure"
            self._failure = end_of_turn(self._job.agent, turn.stop_reason)
            if self._failure is None:
                self._result = await self._events.result.end()

    def _failed(self, failure: Exception) -> ArcpError:
        log.warning("agent's program failed", extra=self._facts | {"why": str(failure)})
        if isinstance(failure, acp.TimedOut):
            return late(self._job.agent, self._asked)
        return end_of_agent(self._job.agent, failure, self._logins)

    def _log_error(self, line: str) -> None:
        before, self._logged = self._logged, self._logged + len(line)
        if before < ERROR_BYTES:
            log.info("program says: %s", line, extra=self._facts)
            if self._logged >= ERROR_BYTES:
                log.info("program may say more, which is not logged", extra=self._facts)


def _runnable(command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command as it is run.

    Raises:
        FileNotFoundError: there is no such program.
    """
    path = environment.get("PATH")
    program = shutil.which(command[0], path=path)
    if program is None:
        raise FileNotFoundError(f"{command[0]} is not a program that can be run")
    return [os.path.abspath(program), *command[1:]]  # noqa: PTH100 - links are not followed
