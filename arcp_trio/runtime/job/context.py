"""What an agent sees of its job, and what it can do there."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, overload

from arcp_trio.runtime.credentials.credential import Credential
from arcp_trio.runtime.job.delegation import Child, delegate
from arcp_trio.runtime.job.events import emit
from arcp_trio.runtime.job.files import open_file
from arcp_trio.runtime.job.result_stream import Encoding, ResultStream
from arcp_trio.runtime.job.tools import ToolCall
from arcp_trio.wire.json import Json, loads
from arcp_trio.wire.lease_request import Amount

if TYPE_CHECKING:
    from _typeshed import (
        OpenBinaryModeReading,
        OpenBinaryModeUpdating,
        OpenBinaryModeWriting,
        OpenTextMode,
    )
    from trio._file_io import AsyncIOWrapper

    from arcp_trio.runtime.job.job import Job


class JobContext:
    """The argument of an agent's function; its methods add events to the job's ordered stream.

    Cancellation: every awaited method is a place where the job can be cancelled.
    Ordering: events are in the order of the calls, whichever of the agent's tasks makes them. An
    event is in the job's journal when the call returns. Most calls return without letting other
    tasks run: an agent that emits in a tight loop does so only every few dozen events.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._input: tuple[Json] | None = None

    @property
    def id(self) -> str:
        """The job's id."""
        return self._job.id

    @property
    def agent(self) -> str:
        """The agent's name."""
        return self._job.agent.name

    @property
    def version(self) -> str:
        """The agent's version, resolved at submission and fixed since (§7.5)."""
        return self._job.agent.version

    @property
    def input(self) -> Json:
        """The input that the client submitted, or the delegating job gave."""
        # Decoded when it is first read: most of a job's life may pass without it.
        if self._input is None:
            self._input = (loads(self._job.input),)
        return self._input[0]

    @property
    def principal(self) -> str:
        """The principal that submitted the job."""
        return self._job.principal

    @property
    def trace_id(self) -> str:
        """The W3C trace id that the job belongs to, 32 hex digits (§11)."""
        return self._job.trace_id

    @property
    def parent_id(self) -> str | None:
        """The id of the job that delegated to this one; None if none did (§10)."""
        return None if self._job.parent is None else self._job.parent.id

    @property
    def lease(self) -> Mapping[str, Json]:
        """The job's lease, as in its acceptance (§9)."""
        return self._job.authority.lease.wire()

    @property
    def expires_at(self) -> str | None:
        """The end of the lease, as in the acceptance; None if there is no end (§9.5)."""
        return self._job.authority.lease.expires_at

    @property
    def budget(self) -> Mapping[str, Decimal]:
        """The rest of the job's own budget, by currency; empty without a budget (§9.6)."""
        return self._job.authority.budget.remaining

    @property
    def deadline(self) -> float | None:
        """The end of `max_runtime_sec`, on Trio's clock; None without a limit."""
        return self._job.agent_run.deadline

    async def over(self) -> None:
        """Wait until the job has ended, even if its agent does not stop within its grace.

        For a task that must clean up by then. Its wait needs a shield: the agent's tasks are
        cancelled before the job has ended.
        """
        await self._job.over()

    @property
    def credentials(self) -> list[Credential]:
        """The job's provisioned credentials as they are now; none once the job is ending (§9.8)."""
        return [] if self._job.wallet is None else self._job.wallet.all()

    async def rotate(self, credential_id: str) -> Credential:
        """Replace a credential by a new one, and have the old one revoked (§9.8.2).

        The job's submitter is told of the new value. If the upstream mints more than one, the
        others are among `credentials`.

        Raises:
            KeyError: the job has no such credential.
            InternalError: there is no new one, and the old one stays valid.
        """
        if self._job.wallet is None:
            raise KeyError(credential_id)
        return await self._job.wallet.rotate(credential_id)

    # -- authority (§9.3)

    def authorize(self, capability: str, target: str) -> None:
        """Return if the lease allows an operation. Do it at once: what is allowed may change.

        Raises:
            LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it.
        """
        self._job.authorize(capability, target)

    def tool_call(self, tool: str, args: Json = None) -> ToolCall:
        """Return the block around a tool's call: `async with job.tool_call("search.web", {…})`.

        `async with … as call:` emits `tool_call`, then `tool_result` with `call.result`, or with
        the error that left the block. A call that the lease does not allow is refused before the
        block is entered: its error is emitted, and raised.
        """
        return ToolCall(self._job, tool, args)

    @overload
    def open(
        self,
        path: str | os.PathLike[str],
        mode: OpenTextMode = "r",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[io.TextIOWrapper]]: ...

    @overload
    def open(
        self, path: str | os.PathLike[str], mode: OpenBinaryModeReading
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[io.BufferedReader]]: ...

    @overload
    def open(
        self, path: str | os.PathLike[str], mode: OpenBinaryModeWriting
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[io.BufferedWriter]]: ...

    @overload
    def open(
        self, path: str | os.PathLike[str], mode: OpenBinaryModeUpdating
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[io.BufferedRandom]]: ...

    def open(
        self,
        path: str | os.PathLike[str],
        mode: str = "r",
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> AbstractAsyncContextManager[AsyncIOWrapper[IO[Any]]]:
        """Open a regular file as Trio's async file: `async with job.open("/ws/a.txt") as file:`.

        Needs `fs.read` for `r`, `fs.write` for `w`, `a` and `x`, and both with `+`: for the path
        and for the real path that its links lead to. The file that is opened is the one that was
        authorised, even if the path changes meanwhile. The parameters are those of Python's `open`.

        Raises:
            LeaseExpired, BudgetExhausted, PermissionDenied: the lease does not allow it, or the
                path is not a regular file.
            OSError: the file cannot be opened.
        """
        return open_file(self._job, path, mode, encoding=encoding, errors=errors, newline=newline)

    async def delegate(
        self,
        agent: str,
        input: Json = None,  # noqa: A002 - its name on the wire
        lease: Mapping[str, Sequence[str]] | None = None,
        budget: Mapping[str, Amount] | None = None,
        expires_in: float | None = None,
        max_runtime: float | None = None,
    ) -> Child:
        """Give work to another agent, with a part of this job's lease (§10).

        The child has what `lease` and `budget` grant and nothing else. It ends with this job at the
        latest, and what it spends counts here, too.

        Raises:
            LeaseSubsetViolation: the child would have more than this job has.
            PermissionDenied: this job's lease has no `agent.delegate` for that agent.
            ArcpError: the delegation is refused for a reason that an operation or a submit has.
            ValueError: `budget` has a currency that is in the lease's `cost.budget`, too.
        """
        return await delegate(
            self._job,
            agent,
            input,
            lease=lease,
            budget=budget,
            expires_in=expires_in,
            max_runtime=max_runtime,
        )

    # -- events (§8.2)

    async def log(self, message: str, level: str = "info") -> None:
        """Emit a log line. Levels: trace, debug, info, warn, error, critical."""
        await emit(self._job, "log", {"level": level, "message": message})

    async def thought(self, text: str) -> None:
        """Emit what the agent is thinking."""
        await emit(self._job, "thought", {"text": text})

    async def status(self, phase: str, message: str | None = None) -> None:
        """Emit that a new phase of the work has begun."""
        await emit(self._job, "status", {"phase": phase, "message": message})

    async def progress(
        self,
        current: float,
        total: float | None = None,
        units: str | None = None,
        message: str | None = None,
    ) -> None:
        """Emit how far the work is (§8.2.1). `current` is at least 0; it may exceed `total`."""
        await emit(
            self._job,
            "progress",
            {"current": current, "total": total, "units": units, "message": message},
        )

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
        await emit(self._job, "metric", body)

    async def artifact(
        self,
        uri: str,
        content_type: str,
        byte_size: int | None = None,
        sha256: str | None = None,
    ) -> None:
        """Emit a reference to something that the agent made."""
        await emit(
            self._job,
            "artifact_ref",
            {"uri": uri, "content_type": content_type, "byte_size": byte_size, "sha256": sha256},
        )

    def stream_result(self, encoding: Encoding = "utf8") -> ResultStream:
        """Stream the result (§8.4): `async with job.stream_result() as out: await out.write(…)`.

        The runtime's limit `chunk_bytes` says how large a chunk is at most. Return nothing
        afterwards: a job that has begun to stream ends as INTERNAL_ERROR if it does not finish,
        streams twice or returns a value. If the client cannot take chunks, the result is sent
        inline, and must fit into a frame.

        Args:
            encoding: "utf8" for text, "base64" for bytes.
        """
        return ResultStream(self._job, encoding)

    async def emit(self, kind: str, body: Mapping[str, Json]) -> None:
        """Emit any event of §8.2, or an `x-vendor.*` one.

        Raises:
            InvalidEvent: the body is not what its kind wants, or a `result_chunk` is not the next
                one of the job's result; nothing was emitted.
        """
        await emit(self._job, kind, body)
