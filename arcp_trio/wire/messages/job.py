"""Payloads of the `job.*` messages (§7, §8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal

import attrs

from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import JsonObject, JsonText, JsonValue, dumps
from arcp_trio.wire.rules import (
    KEEP_NULL,
    SANDBOX,
    VENDOR,
    WIRE_NAME,
    Identifier,
    NonEmpty,
    Remark,
    Rule,
    always,
)
from arcp_trio.wire.timestamps import parse_utc


def _is_utc(text: str) -> bool:
    try:
        parse_utc(text)
    except ValueError:
        return False
    return True


UtcTimestamp = Annotated[str, Rule("an RFC 3339 timestamp ending in Z", _is_utc)]
PositiveInt = Annotated[int, Rule("a positive integer", lambda number: number > 0)]


@attrs.frozen(kw_only=True)
class LeaseConstraints:
    """Bounds of a lease as a whole (§9.5)."""

    expires_at: UtcTimestamp | None = None
    sandbox: Literal["required"] | None = attrs.field(default=None, metadata={WIRE_NAME: SANDBOX})
    """The operating system is to hold the job's agent to the lease."""


@attrs.frozen(kw_only=True)
class SubmitExtras:
    """What a client may ask of this project beyond §7.1."""

    forget: bool = False
    """The job is to leave listings soon after its end, unless it has reported a cost. Only a job
    without a lease can ask for it: what was allowed, and what was spent, stays on record."""


@attrs.frozen(kw_only=True)
class Submit:
    """A new job (§7.1)."""

    type: ClassVar[str] = "job.submit"

    agent: str
    input: JsonValue = attrs.field(default=None, metadata={KEEP_NULL: always})
    lease_request: dict[NonEmpty, list[NonEmpty]] | None = None
    lease_constraints: LeaseConstraints | None = None
    idempotency_key: Identifier | None = None
    max_runtime_sec: PositiveInt | None = None
    extras: SubmitExtras | None = attrs.field(default=None, metadata={WIRE_NAME: VENDOR})

    @property
    def input_text(self) -> JsonText:
        """The input as JSON; a large one is nothing else."""
        given: object = self.input
        return given if isinstance(given, JsonText) else JsonText(dumps(self.input))

    @property
    def is_large(self) -> bool:
        """Whether the input is not decoded, because that may take milliseconds."""
        return isinstance(self.input, JsonText)


@attrs.frozen(kw_only=True)
class Accepted:
    """A job was accepted, with this lease (§7.1)."""

    type: ClassVar[str] = "job.accepted"

    job_id: str
    agent: str | None = None
    lease: JsonObject | None = None
    lease_constraints: JsonObject | None = None
    budget: JsonObject | None = None
    credentials: list[JsonObject] | None = None
    accepted_at: str | None = None
    trace_id: str | None = None
    parent_job_id: str | None = None
    delegate_id: str | None = None
    request_id: str | None = None


@attrs.frozen(kw_only=True)
class Cancel:
    """A request to cancel a job (§7.4)."""

    type: ClassVar[str] = "job.cancel"

    job_id: Identifier
    reason: Remark | None = None


@attrs.frozen(kw_only=True)
class Cancelled:
    """The cancel was accepted; the job's terminal message follows (§7.4)."""

    type: ClassVar[str] = "job.cancelled"

    job_id: str
    reason: str | None = None


@attrs.frozen(kw_only=True)
class Stop:
    """A request to stop a job, from any session of its principal: a message of this project."""

    type: ClassVar[str] = "x-vendor.arcp-trio.stop"

    job_id: Identifier
    reason: Remark | None = None


@attrs.frozen(kw_only=True)
class Stopped:
    """The stop was accepted; the job's terminal message follows."""

    type: ClassVar[str] = "x-vendor.arcp-trio.stopped"

    request_id: str | None = None
    job_id: str
    reason: str | None = None


@attrs.frozen(kw_only=True)
class AnswerQuestion:
    """A person's answer to a question of a job: a message of this project."""

    type: ClassVar[str] = "x-vendor.arcp-trio.answer"

    job_id: Identifier
    question_id: Identifier
    answer: JsonValue = attrs.field(metadata={KEEP_NULL: always})
    scope: Literal["once", "job"] | None = None
    """Whether an approval counts for this time, or for as long as the job runs."""
    reason: Remark | None = None
    """Why an approval was given, or denied."""


@attrs.frozen(kw_only=True)
class QuestionAnswered:
    """The answer is stored; it is the first one."""

    type: ClassVar[str] = "x-vendor.arcp-trio.answered"

    request_id: str | None = None
    job_id: str
    question_id: str


@attrs.frozen(kw_only=True)
class Subscribe:
    """A request to observe a job (§7.6)."""

    type: ClassVar[str] = "job.subscribe"

    job_id: Identifier
    from_event_seq: int | None = None
    history: bool = False


@attrs.frozen(kw_only=True)
class Subscribed:
    """The observation begins, with what an observer may know of the job (§7.6)."""

    type: ClassVar[str] = "job.subscribed"

    request_id: str | None = None
    job_id: str
    current_status: str
    agent: str
    lease: JsonObject | None = None
    lease_constraints: JsonObject | None = None
    budget: JsonObject | None = None
    credentials: list[JsonObject] | None = None
    parent_job_id: str | None = attrs.field(default=None, metadata={KEEP_NULL: always})
    trace_id: str | None = None
    subscribed_from: int | None = None
    replayed: JsonValue = None  # a boolean; some runtimes send a count
    extras: JsonObject | None = attrs.field(default=None, metadata={WIRE_NAME: VENDOR})
    """What a runtime of this project says beyond §7.6: `created_at`, how many of the first events
    are `gone` of a history that is to be whole, and while the job lives, its `input`, as JSON text,
    to its own principal."""


@attrs.frozen(kw_only=True)
class Unsubscribe:
    """A request to end an observation (§7.6)."""

    type: ClassVar[str] = "job.unsubscribe"

    job_id: Identifier


@attrs.frozen(kw_only=True)
class JobEvent:
    """An event of a job (§8.1). A client does not check its body."""

    type: ClassVar[str] = "job.event"

    kind: str
    ts: str | None = None
    body: JsonValue = None


def _is_inline(result: JobResult) -> bool:
    return result.result_id is None and result.output is None


@attrs.frozen(kw_only=True)
class JobResult:
    """The success of a job (§7.3), with its result inline, or the id of its chunks (§8.4)."""

    type: ClassVar[str] = "job.result"

    final_status: str = "success"
    result: JsonValue = attrs.field(default=None, metadata={KEEP_NULL: _is_inline})
    result_id: str | None = None
    result_size: int | None = None
    summary: str | None = None
    completed_at: str | None = None
    output: JsonValue = None  # the name of the inline result in some runtimes

    @property
    def value(self) -> JsonValue:
        """The inline result."""
        return self.output if self.result is None else self.result


_STATUS_OF_CODE: Final[Mapping[str, str]] = {"CANCELLED": "cancelled", "TIMEOUT": "timed_out"}


def _status_of_code(body: JobErrorBody) -> str:
    return _STATUS_OF_CODE.get(body.code, "error")


@attrs.frozen(kw_only=True)
class JobErrorBody:
    """The end of a job that did not succeed (§7.3, §12)."""

    type: ClassVar[str] = "job.error"

    code: str
    final_status: str = attrs.field(default=attrs.Factory(_status_of_code, takes_self=True))
    message: str = ""
    retryable: bool = False
    details: JsonObject | None = None
    completed_at: str | None = None

    @classmethod
    def of(cls, error: ArcpError, *, completed_at: str) -> JobErrorBody:
        """Return the message of a job that ends with this error."""
        return cls(**error.payload(), completed_at=completed_at)
