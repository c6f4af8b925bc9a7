"""The calls of a client: how each is written, and which of them a frame answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

from arcp_trio.client.delivery import Delivery, Reply
from arcp_trio.client.dialects import STANDARD, RuntimeDialect
from arcp_trio.client.job_stream import EventView
from arcp_trio.wire import envelope
from arcp_trio.wire.ids import new_id
from arcp_trio.wire.json import JsonLike, dumps
from arcp_trio.wire.lease_request import Amount, decimal_text, lease_request, need_mapping
from arcp_trio.wire.messages import Accepted, JobListing, Subscribed, TokenMade
from arcp_trio.wire.rules import SANDBOX, SANDBOX_REQUIRED, VENDOR
from arcp_trio.wire.timestamps import rfc3339

NO_REASON: Final = "no longer needed"
"""The reason of a cancel that is given without one."""
SUBMIT: Final = "job.submit"
SUBSCRIBE: Final = "job.subscribe"
CANCEL: Final = "job.cancel"
STOP: Final = "x-vendor.arcp-trio.stop"
ANSWER: Final = "x-vendor.arcp-trio.answer"
TOKEN: Final = "x-vendor.arcp-trio.token"  # noqa: S105 - the name of a message
LIST: Final = "session.list_jobs"
CODE_SECONDS: Final = 60.0
"""How long a one-time code is good for."""

_IN_ORDER: Final = frozenset({SUBMIT, SUBSCRIBE, LIST})
"""The calls that are refused in the order of asking, where refusals name no request."""

T = TypeVar("T")

LeaseRequest: TypeAlias = Mapping[str, Sequence[str]]
BudgetRequest: TypeAlias = Mapping[str, Amount]


@attrs.frozen
class WantedEvents:
    """Which events of a job are to come."""

    history: bool = False
    """Whether the events from before come, too, as far as the runtime has them."""
    from_event_seq: int | None = None
    """The number, of the session that submitted the job, after which the history begins."""
    for_iteration: bool = False
    """Whether an iteration needs the events again, rather than the program asks for them."""


@attrs.define(eq=False)
class Call(Generic[T]):
    """A request and the reply to it. Sent again on another connection it gets another id."""

    kind: str
    payload: bytes
    job_id: str | None = None
    trace_id: str | None = None
    wanted: WantedEvents = WantedEvents()
    """Of a submit or a subscription."""
    reply: Reply[T] = attrs.field(factory=Reply[T], init=False)
    ids: list[str] = attrs.field(factory=list[str], init=False)
    """The ids under which the request was sent, in order."""

    @property
    def repeated(self) -> bool:
        """Whether the request was sent more than once."""
        return len(self.ids) > 1


# -- writing requests


def submit_call(
    agent: str,
    input: JsonLike,  # noqa: A002 - its name on the wire
    *,
    lease: LeaseRequest | None,
    budget: BudgetRequest | None,
    expires_at: float | None,
    idempotency_key: str,
    max_runtime: int | None,
    trace_id: str,
    forget: bool,
    contained: bool,
) -> Call[tuple[EventView, Accepted]]:
    """Make a `job.submit` (§7.1); `ValueError` or `TypeError` if an argument is invalid."""
    payload: dict[str, JsonLike] = {
        "agent": agent,
        "input": input,
        "idempotency_key": idempotency_key,
    }
    need_mapping("budget", budget, '{"USD": "5.00"}')
    amounts = {currency: decimal_text(amount) for currency, amount in (budget or {}).items()}
    if request := lease_request(lease, amounts or None):
        payload["lease_request"] = request
    constraints: dict[str, JsonLike] = {}
    if expires_at is not None:
        constraints["expires_at"] = rfc3339(expires_at)
    if contained:
        constraints[SANDBOX] = SANDBOX_REQUIRED
    if constraints:
        payload["lease_constraints"] = constraints
    if max_runtime is not None:
        payload["max_runtime_sec"] = max_runtime
    if forget:
        payload[VENDOR] = {"forget": True}
    return Call(SUBMIT, dumps(payload), trace_id=trace_id)


def subscribe_call(job_id: str, wanted: WantedEvents) -> Call[tuple[EventView, Subscribed]]:
    """Make a `job.subscribe` (§7.6)."""
    payload: dict[str, JsonLike] = {"job_id": job_id, "history": wanted.history}
    if wanted.from_event_seq is not None:
        payload["from_event_seq"] = wanted.from_event_seq
    return Call(SUBSCRIBE, dumps(payload), job_id=job_id, wanted=wanted)


def cancel_call(job_id: str, reason: str) -> Call[None]:
    """Make a `job.cancel` (§7.4)."""
    return Call(CANCEL, dumps({"job_id": job_id, "reason": reason}), job_id=job_id)


def stop_call(job_id: str, reason: str | None) -> Call[None]:
    """Make an `x-vendor.arcp-trio.stop`."""
    payload: dict[str, JsonLike] = {"job_id": job_id}
    if reason is not None:
        payload["reason"] = reason
    return Call(STOP, dumps(payload), job_id=job_id)


def answer_call(
    job_id: str, question_id: str, answer: JsonLike, *, scope: str | None, reason: str | None
) -> Call[None]:
    """Make an `x-vendor.arcp-trio.answer`; `ValueError` if the answer is not JSON."""
    payload = {"job_id": job_id, "question_id": question_id, "answer": answer}
    given = {"scope": scope, "reason": reason}
    payload.update({name: value for name, value in given.items() if value is not None})
    return Call(ANSWER, dumps(payload), job_id=job_id)


def token_call(
    seconds: float, *, job_id: str | None = None, replaces: str | None = None
) -> Call[TokenMade]:
    """Make an `x-vendor.arcp-trio.token`."""
    given = {"job_id": job_id, "replaces": replaces}
    payload: dict[str, JsonLike] = {"seconds": seconds}
    payload.update({name: value for name, value in given.items() if value is not None})
    return Call(TOKEN, dumps(payload))


def list_call(filters: Mapping[str, JsonLike], cursor: str | None) -> Call[JobListing]:
    """Make a `session.list_jobs` (§6.6). Absent fields are left out: some runtimes mind nulls."""
    given = {name: value for name, value in filters.items() if value is not None}
    payload: dict[str, JsonLike] = {"filter": given} if given else {}
    if cursor is not None:
        payload["cursor"] = cursor
    return Call(LIST, dumps(payload))


# -- the calls of a session


class PendingCalls:
    """The calls of a session that await their reply, in the order in which they were made."""

    def __init__(self, delivery: Delivery, dialect: RuntimeDialect) -> None:
        self.dialect = dialect
        self._delivery = delivery
        self._calls: dict[Call[Any], None] = {}
        self._by_id: dict[str, Call[Any]] = {}

    def __iter__(self) -> Iterator[Call[Any]]:
        return iter(list(self._calls))

    def add(self, call: Call[Any]) -> None:
        """Await a reply. Called before the request is sent, so that no reply comes too early."""
        self._calls[call] = None

    def remove(self, call: Call[Any]) -> None:
        """Await a reply no longer: it has come, or its caller is cancelled."""
        self._calls.pop(call, None)
        for request_id in call.ids:
            self._by_id.pop(request_id, None)

    def frame(self, call: Call[Any], session_id: str) -> bytes:
        """Make the frame to send, under a fresh id."""
        request_id = new_id()
        call.ids.append(request_id)
        self._by_id[request_id] = call
        return envelope.encode(
            call.kind,
            call.payload,
            session_id=session_id,
            id=request_id,
            trace_id=call.trace_id,
            job_id=call.job_id,
        )

    # -- settling

    def succeed(self, call: Call[T], value: T) -> None:
        """Settle a call with the value that its caller gets."""
        self.remove(call)
        self._delivery.succeed(call.reply, value)

    def fail(self, call: Call[Any], error: Exception) -> None:
        """Settle a call with the error that its caller gets."""
        self.remove(call)
        self._delivery.fail(call.reply, error)

    def fail_all(self, error: Exception) -> None:
        """Settle every call with this error."""
        for call in self:
            self.fail(call, error)

    def job_ended(self, job_id: str) -> None:
        """Settle the cancels of a job, where the runtime confirms them by the job's end alone."""
        if self.dialect is STANDARD:
            return
        while (call := self.about(CANCEL, job_id)) is not None:
            self.succeed(call, None)

    # -- which call a frame is about

    def answered(
        self, kind: str, request_id: str | None, job_id: str | None = None
    ) -> Call[Any] | None:
        """Find the call of a kind that an answer is for."""
        if request_id is not None:
            return self._by_id.get(request_id)
        if job_id is not None:
            return self.about(kind, job_id)
        return self.oldest(kind)

    def accepted(self, frame: envelope.Envelope, body: Accepted) -> Call[Any] | None:
        """Find the submit that was accepted: by its id, else by a unique trace, else by order.

        The acceptance of a child answers no call: the child's parent asked for it.
        """
        if body.parent_job_id is not None or body.delegate_id is not None:
            return None
        if body.request_id is not None:
            return self._by_id.get(body.request_id)
        trace_id = frame.trace_id or body.trace_id
        same = [c for c in self._of(SUBMIT) if c.trace_id is not None and c.trace_id == trace_id]
        return same[0] if len(same) == 1 else self.oldest(SUBMIT)

    def refused(
        self, request_id: str | None, job_id: str | None, *, is_refusal: bool
    ) -> Call[Any] | None:
        """Find the call that a `session.error` refuses: by its id, else by its job, else by order.

        The order decides only in dialects whose errors name no request, and not for an error that
        refuses no call at all: `is_refusal` is False then.
        """
        if request_id is not None:
            return self._by_id.get(request_id)
        if job_id is not None:
            about = self.about(CANCEL, job_id) or self.about(SUBSCRIBE, job_id)
            if about is not None:
                return about
        return self.oldest(*_IN_ORDER) if is_refusal and self.dialect.errors_in_order else None

    def about(self, kind: str, job_id: str) -> Call[Any] | None:
        """Find the oldest call of a kind that names this job."""
        return next((call for call in self._of(kind) if call.job_id == job_id), None)

    def oldest(self, *kinds: str) -> Call[Any] | None:
        """Find the oldest call of these kinds."""
        return next((call for call in self._sent() if call.kind in kinds), None)

    def largest(self) -> Call[Any] | None:
        """Find the call whose payload is largest."""
        return max(self._sent(), key=lambda call: len(call.payload), default=None)

    def _of(self, kind: str) -> Iterator[Call[Any]]:
        return (call for call in self._sent() if call.kind == kind)

    def _sent(self) -> Iterator[Call[Any]]:
        return (call for call in self._calls if call.ids)
