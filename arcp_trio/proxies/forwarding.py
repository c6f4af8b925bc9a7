"""Forwarding a job to another runtime, and passing its events and result back."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from decimal import Decimal
from typing import Final

import trio

from arcp_trio.authority.budget import exact
from arcp_trio.authority.lease import BUDGET, MODEL
from arcp_trio.client.client import Client
from arcp_trio.client.errors import BrokenResult, ConnectionFailed
from arcp_trio.client.events import Event
from arcp_trio.client.handles import JobHandle
from arcp_trio.proxies.questions import ForwardedQuestions
from arcp_trio.runtime.job.context import JobContext, tell
from arcp_trio.wire.errors import ArcpError, InternalError, JobError, LeaseExpired
from arcp_trio.wire.events import REMAINING, InvalidEvent
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import JsonObject, JsonValue, object_in, text_in
from arcp_trio.wire.questions import APPROVED, own_tool
from arcp_trio.wire.rules import VENDOR
from arcp_trio.wire.timestamps import parse_utc

log = logging.getLogger(__name__)

CANCEL_SECONDS: Final = 30.0
"""How long the other runtime may take to cancel its job, within the job's own grace."""

DELEGATED: Final = "x-vendor.arcp-trio.delegate"
"""The kind of event for a `delegate` of the other runtime, whose child has no events here (§10)."""
DELEGATED_COST: Final = "cost.delegated"
"""The metric for the costs of such children."""

_TIMESTAMP_STEP: Final = 0.001
"""Seconds; an expiry that is rounded up to a timestamp must not exceed the job's."""


class Forwarding:
    """One job, and the job of the other runtime that does its work."""

    def __init__(self, job: JobContext, client: Client) -> None:
        self._job = job
        self._client = client
        self._questions = ForwardedQuestions(job)
        self._streamed = False
        self._delegated = False
        self._unfit = 0
        self._handle: JobHandle | None = None
        self._events: AsyncIterator[Event] | None = None
        """Kept, as events that are not iterated over would be dropped during a cancel."""
        self._work_scope = trio.CancelScope()
        self._cancel_scope = trio.CancelScope()

    async def run(self, agent: str | None) -> JsonValue:
        """Have the other runtime do the job, and return its result; None if stopped.

        Raises:
            ArcpError: the other runtime refused the job, or ended it with this error.
            BudgetExhausted: the other runtime went on spending.
            ConnectionFailed: the connection to the other runtime is lost.
        """
        if Feature.QUESTIONS in self._client.features:
            self._client.on_question(self._questions.ask)
        with self._work_scope:
            self._handle = await self._submit(agent or self._default_agent())
            self._events = self._handle.events()
            return await self._follow(self._handle, self._events)
        if self._handle is not None and self._events is not None:
            await self._cancel(self._handle, self._events)
        return None

    def stop(self) -> None:
        """Cancel the other runtime's job, and pass on the events that still come."""
        self._work_scope.cancel(reason="the job is cancelled")

    def abandon(self) -> None:
        """Stop waiting for the other runtime."""
        self._work_scope.cancel(reason="the job is over")
        self._cancel_scope.cancel(reason="the job is over")

    async def _cancel(self, handle: JobHandle, events: AsyncIterator[Event]) -> None:
        self._cancel_scope.deadline = trio.current_time() + CANCEL_SECONDS
        with (
            self._cancel_scope,
            suppress(ArcpError, BrokenResult, ConnectionFailed, InvalidEvent),
        ):
            await handle.cancel("the job is to end")
            await self._follow(handle, events)

    # -- to the other runtime

    def _default_agent(self) -> str:
        """Return the agent with the job's agent's name, or else the only agent."""
        job, found = self._job, {each.name: each.versions or () for each in self._client.agents}
        if job.agent in found:
            known = job.version in found[job.agent]
            return f"{job.agent}@{job.version}" if known else job.agent
        if not found:  # the runtime does not list its agents
            return job.agent
        if len(found) > 1:
            others = ", ".join(sorted(found))
            raise JobError(f"the agent's process has no agent {job.agent}, but several: {others}")
        return next(iter(found))

    async def _submit(self, agent: str) -> JobHandle:
        job = self._job
        lease = {name: patterns for name, patterns in job.lease.items() if name != BUDGET}
        budget = {currency: max(left, Decimal(0)) for currency, left in job.budget.items()}
        left = None if job.deadline is None else job.deadline - trio.current_time()
        self._require(Feature.COST_BUDGET, wanted=bool(budget))
        self._require(Feature.LEASE_EXPIRES_AT, wanted=job.expires_at is not None)
        self._require(Feature.MODEL_USE, wanted=MODEL in lease)
        return await self._client.submit(
            agent,
            job.input,
            lease=lease,
            budget=budget,
            expires_in=self._expires_in(),
            # Rounded up, so that the job's own limit is hit first.
            max_runtime=None if left is None else max(1, math.ceil(left)),
            trace_id=job.trace_id,
        )

    def _require(self, feature: str, *, wanted: bool) -> None:
        """Refuse a runtime that cannot enforce a bound of the job."""
        if wanted and feature not in self._client.features:
            raise InternalError(f"the agent's process has no {feature}, which the job needs")

    def _expires_in(self) -> float | None:
        if self._job.expires_at is None:
            return None
        left = parse_utc(self._job.expires_at) - time.time() - _TIMESTAMP_STEP
        if left <= 0:
            raise LeaseExpired(f"lease expired at {self._job.expires_at}")
        return left

    # -- and back

    async def _follow(self, handle: JobHandle, events: AsyncIterator[Event]) -> JsonValue:
        async for event in events:
            await self._pass_on(event)
        try:
            result: JsonValue = await handle.result()
        except BrokenResult:
            if not self._streamed:
                raise
        else:
            if not self._streamed:
                return result
        return None  # the chunks were passed on as this job's own

    async def _pass_on(self, event: Event) -> None:
        body = {k: v for k, v in object_in(event.body).items() if not k.startswith(VENDOR)}
        if event.kind == "result_chunk":
            self._streamed = True
            await self._job.emit(event.kind, body)
            return
        try:
            for kind, told in self._questions.instead_of(event.kind, body):
                await self._pass_on_checked(kind, told)
        except InvalidEvent as error:
            self._unfit += 1
            level = logging.WARNING if self._unfit == 1 else logging.DEBUG
            log.log(level, "event cannot be passed on: %s", error, extra={"job_id": self._job.id})

    async def _pass_on_checked(self, kind: str, body: JsonObject) -> None:
        match kind:
            case "metric" if body.get("name") == REMAINING:
                # The job emits this metric itself.
                await self._settle(body)
            case "status" if body.get("phase") == "credential_rotated":
                pass  # a secret of the other runtime (§9.8)
            case "status" if body.get("phase") == APPROVED:
                await tell(self._job, kind, body)
            case "delegate":
                self._delegated = True
                await tell(self._job, DELEGATED, body)
            case _ if kind == DELEGATED:  # of a third runtime
                await tell(self._job, DELEGATED, body)
            case "tool_call":
                tool = own_tool(text_in(body.get("tool")) or "")
                await self._job.emit(kind, {**body, "tool": tool})
            case _:
                await self._job.emit(kind, body)

    async def _settle(self, metric: JsonObject) -> None:
        """Charge the job for the costs of the other job's children, whose metrics do not come."""
        currency = text_in(metric.get("unit"))
        left = self._job.budget.get(currency or "")
        if not self._delegated or left is None:
            return
        try:
            beyond = left - exact(metric.get("value"))
        except ValueError:
            return
        if beyond > 0:
            await self._job.metric(DELEGATED_COST, beyond, currency)
