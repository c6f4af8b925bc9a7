"""The job's side of what an agent does with its job: one method for each operation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from decimal import Decimal
from typing import TYPE_CHECKING

import attrs

from arcp_trio.runtime.credentials.credential import Credential
from arcp_trio.runtime.job.approvals import OpenApproval, ask_approval, decided_alone
from arcp_trio.runtime.job.asking import ask
from arcp_trio.runtime.job.costs import refuse_if_exhausted
from arcp_trio.runtime.job.delegation import delegate, result_of
from arcp_trio.runtime.job.durable import steps
from arcp_trio.runtime.job.durable.places import Telling
from arcp_trio.runtime.job.events import add_event, emit, give_way, refuse_tool
from arcp_trio.runtime.job.files import open_file
from arcp_trio.runtime.job.notes import hold, keep, kept, release
from arcp_trio.runtime.job.result_writer import Encoding, ResultWriter
from arcp_trio.runtime.job.tools import OpenCall
from arcp_trio.wire.errors import ApprovalNeeded
from arcp_trio.wire.json import JsonLike, JsonObject, JsonValue, loads
from arcp_trio.wire.lease_request import Amount

if TYPE_CHECKING:
    from arcp_trio.authority.approvals import Approval
    from arcp_trio.authority.authority import Authority
    from arcp_trio.reserved import Reserved
    from arcp_trio.runtime.job.job import Job


class Desk:
    """Carries out what one job's agent asks, and holds what the agent has open.

    These methods are the operations. A context calls them through a `Link`: in the same loop, from
    another thread, or from another process.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self._calls: dict[str, OpenCall] = {}
        self._children: set[str] = set()
        """Ids of the jobs that the agent has delegated to."""
        self._approvals: dict[str, OpenApproval] = {}
        """What people were asked for, by the ids of the calls that wait, or are allowed now."""
        self._writer: ResultWriter | None = None

    # -- at once

    def authority(self) -> Authority:
        """Return what the job may do, for what the operating system is to hold its agent to."""
        return self.job.authority

    def reserved(self) -> Reserved:
        """Return what no lease opens."""
        return self.job.core.reserved

    def limits(self) -> Mapping[str, JsonLike]:
        """Return the runtime's limits, by name."""
        return attrs.asdict(self.job.core.limits)

    def sends_chunks(self) -> bool:
        """Return whether chunks of a streamed result are sent."""
        return self.job.spec.sends_chunks

    def grace(self) -> float:
        """Return how many seconds the agent has to stop in, once the job is to end."""
        return self.job.agent_run.grace

    def budget(self) -> Mapping[str, Decimal]:
        """Return the rest of the job's own budget."""
        return self.job.authority.budget.remaining

    def credentials(self) -> list[Credential]:
        """Return the job's credentials as they are now."""
        return [] if self.job.wallet is None else self.job.wallet.all()

    def authorize(self, capability: str, target: str) -> None:
        """Return if the lease allows an operation."""
        self.job.authorize(capability, target)

    def approved(self, capability: str) -> list[str]:
        """Return what people have allowed of a capability for as long as the job runs."""
        decided = self.job.authority.approvals
        found = [each for each in decided if each.capability == capability and each.allowed]
        return [target for each in found for target in each.targets]

    def cover(self, call_id: str, by: str) -> None:
        """Have what people have decided on one call count for another one, too."""
        self._approvals[call_id] = self._approvals[by]

    def release(self, name: str) -> None:
        """Hold a name no longer."""
        release(self.job, name)

    def fail_call(self, call_id: str, error: BaseException) -> None:
        """End a tool call with an error."""
        self._approvals.pop(call_id, None)
        if (call := self._calls.pop(call_id, None)) is not None:
            call.fail(error)

    def summarize(self, summary: str) -> None:
        """Say in words what the streamed result is."""
        assert self._writer is not None, "the result was begun"
        self._writer.summarize(summary)

    def leave_result(self) -> None:
        """Leave the streamed result unfinished."""
        if self._writer is not None:
            self._writer.leave()

    def span(self, call_id: str) -> AbstractContextManager[object]:
        """Return the block in which a tool call's span is the current one."""
        call = self._calls.get(call_id)
        return nullcontext() if call is None else call.span.current()

    def leave_run(self) -> None:
        """Take nothing more of this run, if the job goes on after the death of its process."""
        if self.job.leave_run():
            self.leave_result()

    # -- what the job remembers

    def finish_step(self, key: str, result: str) -> None:
        """End a step with its result, as JSON."""
        self._finish_writing(key)
        steps.finish(self.job, key, result.encode())

    def fail_step(self, key: str, failed: int, pause: float) -> float:
        """Count a call of a step's function that failed; return when to try again."""
        again_at = steps.fail(self.job, key, failed, pause)
        if self._writer is not None and not self.job.suspended:
            self._writer.fail_step(key)
        return again_at

    def finish_tool(self, key: str, call_id: str, result: str) -> None:
        """End a tool call that is a step with its result, as JSON."""
        encoded = result.encode()
        self._finish_writing(key)
        steps.finish_call(self.job, key, self._calls[call_id], loads(encoded), encoded)
        self._approvals.pop(call_id, None)
        del self._calls[call_id]

    def _finish_writing(self, key: str) -> None:
        if self._writer is not None:
            self._writer.finish_step(key)

    def fail_tool(self, key: str, call_id: str, error: BaseException) -> None:
        """End a tool call that is a step with an error, unless it has ended."""
        if (call := self._calls.pop(call_id, None)) is not None:
            steps.fail_call(self.job, key, call, error)

    async def begin_step(self, key: str) -> JsonObject | None:
        """Begin a step; return what an earlier run has left of it."""
        state = await steps.begin(self.job, key, steps.STEP)
        if state is None or "done" not in state:
            await refuse_if_exhausted(self.job)
        return state

    async def begin_tool(self, key: str, tool: str, args: JsonLike) -> JsonObject:
        """Begin a tool call that is a step; return what an earlier run has left, and its id.

        `asked` is true if a person has to decide first: then await `decision`.
        """
        state, call = await steps.begin_call(self.job, key, tool, args)
        if call is None:
            return state
        self._calls[call.id] = call
        try:
            return {**state, "asked": await self._is_asked(call, tool, args, f"approval {key}")}
        except BaseException as error:
            self.fail_tool(key, call.id, error)
            raise

    async def _is_asked(self, call: OpenCall, tool: str, args: JsonLike, key: str) -> bool:
        """Check a call; return whether people are asked first, if the lease wants it so."""
        # What was decided here counts, also if the tool was allowed for the whole job after that.
        asked = self.job.memory.has_approval(key)
        try:
            await call.check(tool)
        except ApprovalNeeded:
            asked = True
        if asked:
            self._approvals[call.id] = ask_approval(
                *(self.job, call.id, tool, args, "tool.call", [tool]),
                key=key if self.job.memory.durable else None,
                is_told=True,
            )
        return asked

    async def memos_kept(self) -> None:
        """Wait until what the job remembers is stored."""
        with self.job.over.ends_waits():
            await self.job.memory.kept()

    async def keep(self, note: str) -> None:
        """Store the job's note, which is JSON."""
        await keep(self.job, note)

    async def kept(self, job_id: str) -> JsonValue:
        """Return the note of a job of the same principal."""
        return await kept(self.job, job_id)

    async def pause(self, until: float, most: float) -> None:
        """Wait until a step is to be tried again, if there is money for it."""
        await steps.pause(self.job, until, most)
        await refuse_if_exhausted(self.job)

    async def sleep(self, key: str, seconds: float | None, until: float | None) -> bool:
        """Sleep; return whether an earlier run had begun to."""
        return await steps.sleep(self.job, key, seconds, until)

    # -- with a wait

    async def emit(
        self, kind: str, body: Mapping[str, JsonLike], telling: int = Telling.ALWAYS
    ) -> None:
        """Emit an event."""
        # From another process it comes as a number.
        how = telling if isinstance(telling, Telling) else Telling(telling)
        await emit(self.job, kind, body, how)

    async def tell(self, kind: str, body: Mapping[str, JsonLike]) -> None:
        """Emit an event of the runtime's own about the agent."""
        add_event(self.job, kind, body)
        await give_way(self.job)

    async def begin_call(
        self, call_id: str, tool: str, args: JsonLike, telling: int = Telling.ALWAYS
    ) -> bool:
        """Begin a tool call, unless the lease does not allow it.

        Returns:
            Whether people are asked, so that the call waits for their `decision`.
        """
        refuse_tool(tool)
        call = OpenCall(self.job, call_id, Telling(telling))
        call.announce(tool, args)
        self._calls[call_id] = call
        try:
            return await self._is_asked(call, tool, args, f"approval {call_id}")
        except BaseException as error:
            self.fail_call(call_id, error)
            raise

    async def end_call(self, call_id: str, result: JsonLike) -> None:
        """End a tool call with its result."""
        self._approvals.pop(call_id, None)
        if (call := self._calls.pop(call_id, None)) is not None:
            await call.end(result)

    async def open(
        self, path: str, mode: str, approved: str | None = None, key: str | None = None
    ) -> int:
        """Open a file that the lease allows, and return its descriptor, which the caller owns.

        Args:
            approved: the call by which people have allowed it; without one they are asked if the
                lease says so.
            key: what a durable job remembers their decision under.
        """
        approvals: list[Approval] = []
        if approved is not None:
            allowed = self._approvals.pop(approved).approval
            approvals += [] if allowed is None else [allowed]
        while True:
            try:
                return await open_file(self.job, path, mode, approvals)
            except ApprovalNeeded as needed:
                if approved is not None or "target" not in needed.details:
                    raise  # of what stands behind a link, nobody is asked
                capability, named = needed.details["capability"], needed.details["target"]
                approvals.append(
                    await decided_alone(
                        self.job,
                        capability,
                        named,
                        {"path": named, "mode": mode},
                        f"approval {capability} {key}",
                    )
                )

    async def authorize_or_ask(self, capability: str, target: str, key: str | None = None) -> None:
        """Return if the lease allows an operation, or people do where the lease says so."""
        try:
            self.job.authorize(capability, target)
        except ApprovalNeeded:
            key = f"approval {key}"
            await decided_alone(self.job, capability, target, {"target": target}, key)

    async def begin_result(self, encoding: Encoding, author: str) -> None:
        """Begin the streamed result, in a step or outside of steps."""
        if self._writer is not None and self._writer.is_left:
            self._writer.begin_again(encoding)
        else:
            self._writer = await ResultWriter.begin(self.job, encoding, author)

    async def write_result(self, data: bytes, author: str) -> None:
        """Add to the streamed result what a step writes, or the code outside of steps."""
        assert self._writer is not None, "the result was begun"
        await self._writer.write(data, author)

    async def end_result(self) -> None:
        """Finish the streamed result."""
        assert self._writer is not None, "the result was begun"
        await self._writer.end()

    async def delegate(
        self,
        agent: str,
        input: JsonLike,  # noqa: A002 - its name on the wire
        lease: Mapping[str, Sequence[str]] | None,
        budget: Mapping[str, Amount] | None,
        expires_in: float | None,
        max_runtime: float | None,
        key: str,
    ) -> str:
        """Give work to another agent, and return the child's id."""
        child_id = await delegate(
            self.job,
            agent,
            input,
            lease=lease,
            budget=budget,
            expires_in=expires_in,
            max_runtime=max_runtime,
            key=key,
        )
        self._children.add(child_id)
        return child_id

    async def child_result(self, child_id: str) -> JsonValue | bytes:
        """Wait for the end of a child, and return its result."""
        if child_id not in self._children:
            raise KeyError(child_id)
        with self.job.over.ends_waits():
            return await result_of(self.job, child_id)

    async def rotate(self, credential_id: str) -> Credential:
        """Replace a credential by a new one."""
        if self.job.wallet is None:
            raise KeyError(credential_id)
        return await self.job.wallet.rotate(credential_id)

    async def ask(
        self,
        key: str,
        prompt: str,
        options: Sequence[str] | None,
        schema: Mapping[str, JsonLike] | None,
        to: str | None,
        expires_in: float | None,
    ) -> JsonObject:
        """Ask people; return whether an earlier run had asked, and the answer, if any."""
        known, done = await ask(self.job, key, prompt, options, schema, to, expires_in)
        return {"known": known, **done}

    async def ask_approval(
        self,
        call_id: str,
        tool: str,
        args: JsonLike,
        capability: str,
        targets: Sequence[str],
        shown: Mapping[str, JsonLike] | None = None,
    ) -> None:
        """Ask people for leave to do something."""
        question = ask_approval(self.job, call_id, tool, args, capability, targets, shown)
        self._approvals[call_id] = question

    async def decision(self, call_id: str) -> JsonObject:
        """Wait for what people decide; return what is to be told of it."""
        try:
            return await self._approvals[call_id].decision()
        except BaseException:
            del self._approvals[call_id]
            raise

    async def hold(self, name: str) -> str | None:
        """Hold a name, so that no job at another node does; return the job that has it."""
        return await hold(self.job, name)

    async def over(self) -> None:
        """Wait until the job has ended."""
        await self.job.over.wait()
