"""What an agent can do with its job on Trio's loop and on asyncio's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from arcp_trio.runtime.credentials.credential import Credential
from arcp_trio.runtime.job.awaiting import awaited
from arcp_trio.runtime.job.blocks import Child, ResultStream, ThoughtStream, ToolCall
from arcp_trio.runtime.job.desk import Desk
from arcp_trio.runtime.job.durable.calls import DurableCalls
from arcp_trio.runtime.job.durable.keys import key_of
from arcp_trio.runtime.job.result_writer import Encoding
from arcp_trio.wire.errors import Unanswered
from arcp_trio.wire.json import Json
from arcp_trio.wire.lease_request import Amount
from arcp_trio.wire.questions import HUMAN_ASK


class AwaitableContext(DurableCalls):
    """The calls of a context whose methods are awaited, under Trio or asyncio.

    Cancellation: every awaited method is a place where the job can be cancelled.
    Ordering: events are in the order of the calls, whichever of the agent's tasks makes them. An
    event is in the job's journal when the call returns.
    """

    @awaited
    async def over(self) -> None:
        """Wait until the job has ended, even if its agent does not stop within its grace.

        For a task that must clean up by then. Its wait needs a shield: the agent's tasks are
        cancelled before the job has ended.
        """
        await self._link.do(Desk.over)

    @awaited
    async def rotate(self, credential_id: str) -> Credential:
        """Replace a credential by a new one, and have the old one revoked (§9.8.2).

        The job's submitter is told of the new value. If the upstream mints more than one, the
        others are among `credentials`.

        Raises:
            KeyError: the job has no such credential.
            InternalError: there is no new one, and the old one stays valid.
        """
        return await self._link.do(Desk.rotate, credential_id)

    def tool_call(self, tool: str, args: Json = None) -> ToolCall:
        """Return the block around a tool's call: `async with job.tool_call("search.web", {…})`.

        `async with … as call:` emits `tool_call`, then `tool_result` with `call.result`, or with
        the error that left the block. A call that the lease does not allow is refused before the
        block is entered: its error is emitted, and raised.
        """
        return ToolCall(self._link, tool, args, job_id=self.id if self._facts.durable else None)

    @awaited
    async def delegate(
        self,
        agent: str,
        input: Json = None,  # noqa: A002 - its name on the wire
        lease: Mapping[str, Sequence[str]] | None = None,
        budget: Mapping[str, Amount] | None = None,
        expires_in: float | None = None,
        max_runtime: float | None = None,
        name: str | None = None,
    ) -> Child:
        """Give work to another agent, with a part of this job's lease (§10).

        The child has what `lease` and `budget` grant and nothing else. It ends with this job at the
        latest, and what it spends counts here, too. A durable job gets the same child after a
        restart; in tasks that run side by side, delegations need a `name` of their own.

        Raises:
            LeaseSubsetViolation: the child would have more than this job has.
            PermissionDenied: this job's lease has no `agent.delegate` for that agent.
            ArcpError: the delegation is refused for a reason that an operation or a submit has.
            ValueError: `budget` has a currency that is in the lease's `cost.budget`, too.
        """
        key = key_of(self._place().next_path(agent if name is None else name))
        child_id = await self._link.do(
            Desk.delegate, agent, input, lease, budget, expires_in, max_runtime, key
        )
        return Child(self._link, child_id)

    @awaited
    async def ask(
        self,
        prompt: str,
        options: Sequence[str] | None = None,
        schema: Mapping[str, Json] | None = None,
        to: str | None = None,
        expires_in: float | None = None,
        name: str | None = None,
    ) -> Json:
        """Ask people, and return the first valid answer; needs `tool.call` of `human.ask`.

        The principal that submitted the job may answer, and so may approvers (`Policy`).

        Args:
            prompt: the question.
            options: the texts of which the answer is one. Without options and schema any JSON is
                an answer.
            schema: what the answer must be, in JSON Schema: `type`, `enum`, `const`, `properties`,
                `required`, `additionalProperties`, `items`, `minItems`, `maxItems`, `minimum`,
                `maximum`, `minLength` and `maxLength`, beside keywords that only describe.
            to: who is meant to answer, for people to read.
            expires_in: after how many seconds it is too late to answer.
            name: tells questions of tasks that run side by side apart; see `step`.

        Raises:
            Unanswered: nobody has answered in time.
            LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it.
            InternalError: the job asks too much at once.
            ValueError, TypeError: an argument is invalid.
            ValueError: another task asks under the same name, or did.
        """
        key = key_of(self._place().next_path(HUMAN_ASK if name is None else name))
        asked = await self._link.do(Desk.ask, key, prompt, options, schema, to, expires_in)
        if not asked["known"]:
            self._go_live()
        if "answer" not in asked:
            raise Unanswered.to(prompt)
        return asked["answer"]

    # -- events (§8.2)

    @awaited
    async def log(self, message: str, level: str = "info") -> None:
        """Emit a log line. Levels: trace, debug, info, warn, error, critical."""
        await self._emit("log", {"level": level, "message": message})

    @awaited
    async def thought(self, text: str) -> None:
        """Emit what the agent is thinking: a sentence, or more; for less, see `stream_thought`."""
        await self._emit("thought", {"text": text})

    def stream_thought(self) -> ThoughtStream:
        """Emit what a model thinks: `async with job.stream_thought() as out: await out.write(…)`.

        Each event has whole sentences, however small the pieces are.
        """
        return ThoughtStream(self._link, self)

    @awaited
    async def status(self, phase: str, message: str | None = None) -> None:
        """Emit that a new phase of the work has begun."""
        await self._emit("status", {"phase": phase, "message": message})

    @awaited
    async def progress(
        self,
        current: float,
        total: float | None = None,
        units: str | None = None,
        message: str | None = None,
    ) -> None:
        """Emit how far the work is (§8.2.1). `current` is at least 0; it may exceed `total`."""
        body = {"current": current, "total": total, "units": units, "message": message}
        await self._emit("progress", body)

    @awaited
    async def metric(
        self,
        name: str,
        value: float | Decimal,
        unit: str | None = None,
        dimensions: Mapping[str, Json] | None = None,
    ) -> None:
        """Emit a measurement. One whose name begins with `cost.` is never negative (§9.6)."""
        kept = None if dimensions is None else dict(dimensions)
        body = {"name": name, "value": value, "unit": unit, "dimensions": kept}
        await self._emit("metric", body)

    @awaited
    async def artifact(
        self,
        uri: str,
        content_type: str,
        byte_size: int | None = None,
        sha256: str | None = None,
    ) -> None:
        """Emit a reference to something that the agent made."""
        await self._emit(
            "artifact_ref",
            {"uri": uri, "content_type": content_type, "byte_size": byte_size, "sha256": sha256},
        )

    async def _emit(self, kind: str, body: Mapping[str, Json]) -> None:
        if self._facts.durable:
            await self._link.do(Desk.emit, kind, body, self._place().telling)
        else:
            await self._link.do(Desk.emit, kind, body)

    def stream_result(self, encoding: Encoding = "utf8") -> ResultStream:
        """Stream the result (§8.4): `async with job.stream_result() as out: await out.write(…)`.

        The runtime's limit `chunk_bytes` says how large a chunk is at most. Return nothing
        afterwards: a job that has begun to stream ends as INTERNAL_ERROR if it does not finish,
        streams twice or returns a value. If the client cannot take chunks, the result is sent
        inline, and must fit into a frame.

        Args:
            encoding: "utf8" for text, "base64" for bytes.
        """
        return ResultStream(self._link, encoding)

    @awaited
    async def emit(self, kind: str, body: Mapping[str, Json]) -> None:
        """Emit any event of §8.2, or an `x-vendor.*` one.

        Raises:
            InvalidEvent: the body is not what its kind wants, or a `result_chunk` is not the next
                one of the job's result; nothing was emitted.
        """
        await self._emit(kind, body)
