"""What an agent asks for, decided by the lease of its job, or by a person if the lease says so.

A request is decided in one step, where it stands among what the agent tells. What takes time goes
on in a task beside the turn: a person's decision, a file, a command. What a request has come to is
told before the agent is answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio import acp
from arcp_trio.acp.errors import CANCELLED, INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND
from arcp_trio.proxies.acp.allowed import AllowedEdits
from arcp_trio.proxies.acp.calls import Calls
from arcp_trio.proxies.acp.edits import Edit, changes, edits_in
from arcp_trio.proxies.acp.files import Files
from arcp_trio.proxies.acp.named import (
    MOST_NAMED,
    WRITE,
    Need,
    command_in,
    needed_for_call,
    paths_beside,
    texts_beside,
    title_of,
    tool_of,
)
from arcp_trio.proxies.acp.operation import Clearance, Operation
from arcp_trio.proxies.acp.terminals import AgentTerminal, Terminals
from arcp_trio.proxies.acp.workplace import Workplace
from arcp_trio.runtime.job.approvals import MOST_ARGS_BYTES
from arcp_trio.runtime.job.fitting import MOST_NAME, fitted, fitted_text
from arcp_trio.runtime.limits import Limits
from arcp_trio.wire.errors import (
    ApprovalNeeded,
    ArcpError,
    InternalError,
    JobCancelled,
    PermissionDenied,
    clip,
)
from arcp_trio.wire.json import JsonObject, JsonValue, object_in, text_in
from arcp_trio.wire.questions import ALLOW, DENY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from arcp_trio.runtime.job.context import JobContext

_MOST_INPUT_BYTES: Final = MOST_ARGS_BYTES - 2 * 1024
"""How much is told of the input of a tool call for which the agent asks permission."""


class Requests:
    """Answers the requests of one job's agent, each at its place in the order."""

    def __init__(
        self,
        job: JobContext,
        calls: Calls,
        nursery: trio.Nursery,
        place: Workplace,
        edits: AllowedEdits,
        limits: Limits,
    ) -> None:
        self._job = job
        self._edits = edits
        self._calls = calls
        self._nursery = nursery
        self._place = place
        self._files = Files(job, calls, place, limits)
        self._terminals = Terminals(job, calls, place, limits)
        self._open: set[acp.Request] = set()
        """The requests that have a task."""
        self._changed = trio.lowlevel.ParkingLot()
        self._closed = False

    async def take(self, request: acp.Request) -> None:
        """Decide a request, and answer it at once or later."""
        if self._closed:
            _cancel(request)
            return
        await self._edits.settle()
        try:
            match request:
                case acp.PermissionRequest():
                    await self._decide(request, self._permission(request))
                case acp.FileRequest():
                    await self._decide(request, self._files.operation(request))
                case _ if request.method == "terminal/create":
                    await self._decide(request, self._terminals.operation(request))
                case _:
                    self._serve(request)
        except ValueError as error:
            request.fail(INVALID_PARAMS, str(error))

    async def close(self) -> None:
        """End what is open, and refuse what still comes: the turn is over, or the job is ending."""
        self._closed = True
        for request in self._open:
            request.life.cancel(reason="the turn is over")
        self._terminals.kill_all()
        while self._open:
            await self._changed.park()

    # -- deciding

    async def _decide(self, request: acp.Request, operation: Operation) -> None:
        call_id = await self._calls.begin(request.method, operation.args)
        try:
            asked = self._to_be_asked(operation.needs)
            if operation.obstacle is not None:
                raise operation.obstacle
            cleared = Clearance(call_id) if asked is None else None
            if asked is not None and isinstance(request, acp.FileRequest) and operation.edits:
                cleared = await self._edits.cover(call_id, operation.edits[0])
            if asked is not None and cleared is None:
                await self._ask(call_id, request.method, operation, asked)
        except ArcpError as error:
            await self._refuse(request, call_id, operation, error)
            return
        if cleared is not None and operation.at_once:
            await operation.perform(cleared)
        else:
            self._start(request, partial(self._finish, request, call_id, operation, cleared))

    def _to_be_asked(self, needs: Sequence[Need]) -> Need | None:
        """Return what people have to be asked for; None if the lease allows all.

        Raises:
            ArcpError: the lease does not allow it, whatever people say.
        """
        asked: list[Need] = []
        for need in needs:
            targets: list[str] = []
            for target in need.targets:
                try:
                    self._job.authorize(need.capability, target)
                except ApprovalNeeded:
                    targets.append(target)
            if targets:
                asked.append(Need(need.capability, targets))
        if len(asked) > 1:
            both = " and ".join(need.capability for need in asked)
            raise PermissionDenied(f"{both} both need an approval, and one call can ask for one")
        return asked[0] if asked else None

    async def _ask(self, call_id: str, method: str, operation: Operation, need: Need) -> None:
        shown, targets = operation.shown, need.targets
        edited = targets if operation.is_edit and need.capability == WRITE else ()
        if edited or operation.edits:
            shown = {**shown, "changes": await changes(self._job, operation.edits, edited)}
        await self._job.ask_approval(
            call_id, method, operation.args, need.capability, targets, shown
        )

    async def _finish(
        self,
        request: acp.Request,
        call_id: str,
        operation: Operation,
        cleared: Clearance | None,
    ) -> None:
        try:
            if cleared is None:
                cleared = Clearance(call_id, await self._decision(request, call_id))
            await operation.perform(cleared)
        except ArcpError as error:
            await self._refuse(request, call_id, operation, error)
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else INTERNAL_ERROR
            failure = InternalError(failure_words(error))
            await self._refuse(request, call_id, operation, failure, code)
        else:
            if isinstance(request, acp.FileRequest):
                for edit in operation.edits:
                    self._edits.written(edit)

    async def _decision(self, request: acp.Request, call_id: str) -> Mapping[str, JsonValue]:
        with request.life:
            return await self._job.decision(call_id)
        by = "agent" if request.taken_back else "end"
        raise JobCancelled("nobody has decided", details={"decision": DENY, "by": by})

    async def _refuse(
        self,
        request: acp.Request,
        call_id: str,
        operation: Operation,
        error: ArcpError,
        code: int = INTERNAL_ERROR,
    ) -> None:
        call = request.tool.raw if isinstance(request, acp.PermissionRequest) else None
        self._edits.refused(operation.written, error, call)
        await self._calls.fail(call_id, error)
        if self._closed:
            _cancel(request)
        elif isinstance(request, acp.PermissionRequest):
            request.refuse()
        else:
            request.fail(code, f"{error.code}: {error.message}")

    # -- permission

    def _permission(self, request: acp.PermissionRequest) -> Operation:
        call = request.tool.raw
        args: JsonObject = {"tool": tool_of(call)[:MOST_NAME]}
        for name, text in (("call_id", text_in(call.get("toolCallId"))), ("title", title_of(call))):
            if text is not None:
                args[name] = clip(text, MOST_NAME)
        args |= _told_of_input(call)
        needs: Sequence[Need] = ()
        obstacle = None
        try:
            needs = [needed_for_call(call, self._place.cwd)]
        except PermissionDenied as error:
            obstacle = error
        if request.option("allow_once") is None:
            obstacle = PermissionDenied("the agent does not offer to be allowed this once")
        edits = edits_in(call, self._place.cwd)
        shown: JsonObject = {"cwd": self._place.cwd}
        if (command := command_in(call)) is not None:
            shown["command"] = fitted_text(command, _MOST_INPUT_BYTES)
        return Operation(
            args=args,
            shown=shown,
            edits=edits,
            is_edit=call.get("kind") == "edit",
            needs=needs,
            perform=partial(self._allow, request, edits, needs),
            at_once=True,
            obstacle=obstacle,
        )

    async def _allow(
        self,
        request: acp.PermissionRequest,
        edits: Sequence[Edit],
        needs: Sequence[Need],
        cleared: Clearance,
    ) -> None:
        for need in needs:
            if need.capability == WRITE:
                await self._edits.allow(request.tool.raw, need.targets, edits, cleared)
        await self._calls.end(cleared.call_id, {"decision": ALLOW, **cleared.decision})
        request.allow_once()

    # -- commands that were started

    def _serve(self, request: acp.Request) -> None:
        terminal = self._terminals.find(text_in(request.params.get("terminalId")))
        if terminal is None:
            request.fail(NOT_FOUND, "there is no such terminal")
            return
        match request.method:
            case "terminal/output":
                request.answer(terminal.output())
            case "terminal/wait_for_exit":
                self._start(request, partial(_wait_for_exit, request, terminal))
            case "terminal/kill":
                terminal.kill()
                request.answer({})
            case _:
                self._terminals.release(terminal)
                request.answer({})

    def _start(self, request: acp.Request, work: Callable[[], Awaitable[None]]) -> None:
        self._open.add(request)
        self._nursery.start_soon(self._run, request, work, name=f"request: {request.method}")

    async def _run(self, request: acp.Request, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        finally:
            self._open.remove(request)
            self._changed.unpark_all()


def _told_of_input(call: JsonObject) -> JsonObject:
    """Return what a tool call is about to do, for those that decide: its title proves nothing."""
    told: JsonObject = {}
    if given := call.get("rawInput"):
        told["input"] = given
    if texts := list(islice(texts_beside(call), MOST_NAMED)):
        told["content"] = [*texts]
    if paths := list(islice(paths_beside(call), MOST_NAMED)):
        told["paths"] = [*paths]
    cut = fitted(told, _MOST_INPUT_BYTES)
    return {**object_in(cut.value), **cut.note}


def failure_words(error: OSError) -> str:
    """Return what has failed and why; not every failure has a file or a number."""
    if error.strerror is None:
        return clip(str(error))
    named = error.filename is not None
    return f"{clip(str(error.filename))}: {error.strerror}" if named else error.strerror


async def _wait_for_exit(request: acp.Request, terminal: AgentTerminal) -> None:
    with request.life:
        await terminal.over.wait()
        request.answer(terminal.exit)
    if request.life.cancelled_caught:
        _cancel(request)


def _cancel(request: acp.Request) -> None:
    if isinstance(request, acp.PermissionRequest):
        request.cancel()
    else:
        request.fail(CANCELLED, "cancelled")
