"""A job that another runtime does: what goes there with it, and what of there becomes its own."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Mapping
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
from arcp_trio.client.reading import object_in, text_in
from arcp_trio.runtime.job.context import JobContext
from arcp_trio.wire.errors import ArcpError, BudgetExhausted, InternalError, JobError, LeaseExpired
from arcp_trio.wire.events import REMAINING, InvalidEvent
from arcp_trio.wire.features import Feature
from arcp_trio.wire.json import Json, JsonObject
from arcp_trio.wire.timestamps import parse_utc

log = logging.getLogger(__name__)

CANCEL_SECONDS: Final = 30.0
"""What the other runtime may take over a cancel, unless the job's own grace ends before."""

DELEGATED: Final = "x-vendor.arcp-trio.delegate"
"""A `delegate` there, whose child is not one of the session here (§10)."""
DELEGATED_COST: Final = "cost.delegated"
"""What such children have spent."""

_A_MOMENT: Final = 0.001
"""The step of a timestamp."""


class Forwarding:
    """One job's."""

    def __init__(self, job: JobContext, client: Client) -> None:
        self._job = job
        self._client = client
        self._streamed = False
        self._delegated = False
        self._unfit = 0
        self._handle: JobHandle | None = None
        self._events: AsyncIterator[Event] | None = None
        """Kept: what nobody iterates over is let go while a cancel waits to be answered."""
        self._doing = trio.CancelScope()
        self._stopping = trio.CancelScope()

    async def run(self, agent: str | None) -> Json:
        """Have the other runtime's agent do the job, and return its result; None if stopped.

        Raises:
            ArcpError: what the other runtime refuses the job with, or ends it with.
            BudgetExhausted: it went on spending.
            ConnectionFailed: the other runtime is lost.
        """
        with self._doing:
            self._handle = await self._submit(agent or self._agent_there())
            self._events = self._handle.events()
            return await self._follow(self._handle, self._events)
        if self._handle is not None and self._events is not None:
            await self._cancel(self._handle, self._events)
        return None

    def stop(self) -> None:
        """Have the other job cancelled, and what still comes of it passed on."""
        self._doing.cancel(reason="the job is cancelled")

    def abandon(self) -> None:
        """Wait for nothing any more."""
        self._doing.cancel(reason="the job is over")
        self._stopping.cancel(reason="the job is over")

    async def _cancel(self, handle: JobHandle, events: AsyncIterator[Event]) -> None:
        self._stopping.deadline = trio.current_time() + CANCEL_SECONDS
        with (
            self._stopping,
            suppress(ArcpError, BrokenResult, ConnectionFailed, InvalidEvent),
        ):
            await handle.cancel("the job is to end")
            await self._follow(handle, events)

    # -- there

    def _agent_there(self) -> str:
        job, there = self._job, {each.name: each.versions or () for each in self._client.agents}
        if job.agent in there:
            known = job.version in there[job.agent]
            return f"{job.agent}@{job.version}" if known else job.agent
        if not there:  # it does not tell
            return job.agent
        if len(there) > 1:
            others = ", ".join(sorted(there))
            raise JobError(f"the agent's process has no agent {job.agent}, but several: {others}")
        return next(iter(there))

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
            # Ours is the limit, that is to be hit first.
            max_runtime=None if left is None else max(1, math.ceil(left)),
            trace_id=job.trace_id,
        )

    def _require(self, feature: str, *, wanted: bool) -> None:
        """What bounds the job has to bound it there: who cannot do so does not get it."""
        if wanted and feature not in self._client.features:
            raise InternalError(f"the agent's process has no {feature}, which the job needs")

    def _expires_in(self) -> float | None:
        if self._job.expires_at is None:
            return None
        left = parse_utc(self._job.expires_at) - time.time() - _A_MOMENT
        if left <= 0:
            raise LeaseExpired(f"lease expired at {self._job.expires_at}")
        return left

    # -- and back

    async def _follow(self, handle: JobHandle, events: AsyncIterator[Event]) -> Json:
        async for event in events:
            await self._pass_on(event)
        try:
            result = await handle.result()
        except BrokenResult:
            if not self._streamed:
                raise
        else:
            if not self._streamed:
                return result
        return None  # its chunks are ours; they were held to their order

    async def _pass_on(self, event: Event) -> None:
        body = object_in(event.body)
        if event.kind == "result_chunk":
            self._streamed = True
            await self._job.emit(event.kind, body)
            return
        try:
            await self._pass_on_checked(event.kind, body)
        except InvalidEvent as error:
            self._unfit += 1
            level = logging.WARNING if self._unfit == 1 else logging.DEBUG
            log.log(level, "event cannot be passed on: %s", error, extra={"job_id": self._job.id})

    async def _pass_on_checked(self, kind: str, body: JsonObject) -> None:
        match kind:
            case "metric" if body.get("name") == REMAINING:
                # The job says so itself, of its own budget.
                await self._settle(body)
            case "metric":
                await self._charge(body)
            case "status" if body.get("phase") == "credential_rotated":
                pass  # a secret (§9.8), of the other runtime's
            case "delegate":
                self._delegated = True
                await self._job.emit(DELEGATED, body)
            case _:
                await self._job.emit(kind, body)

    async def _charge(self, metric: Mapping[str, Json]) -> None:
        before = self._job.budget
        await self._job.emit("metric", metric)
        used_up = next((currency for currency, left in before.items() if left <= 0), None)
        if used_up is not None and self._job.budget != before:
            # A runtime that minds budgets would have refused whatever that was for.
            raise BudgetExhausted(f"{used_up} budget exhausted")

    async def _settle(self, metric: Mapping[str, Json]) -> None:
        """Count what was spent there by children, whose own events do not come here."""
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
