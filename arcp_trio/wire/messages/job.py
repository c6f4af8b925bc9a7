"""Payloads of the `job.*` messages (§7, §8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import attrs

from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import Json, JsonObject
from arcp_trio.wire.schema import KEEP_NULL, Identifier, NonEmpty, Remark, Rule, always
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
    """Bounds on a lease as a whole (§9.5)."""

    expires_at: UtcTimestamp | None = None


@attrs.frozen(kw_only=True)
class Submit:
    """A new job (§7.1)."""

    type: ClassVar[str] = "job.submit"

    agent: str
    input: Json = attrs.field(default=None, metadata={KEEP_NULL: always})
    lease_request: dict[NonEmpty, list[NonEmpty]] | None = None
    lease_constraints: LeaseConstraints | None = None
    idempotency_key: Identifier | None = None
    max_runtime_sec: PositiveInt | None = None


@attrs.frozen(kw_only=True)
class Accepted:
    """A job has been taken on, with this lease (§7.1)."""

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
    """A request to end a job (§7.4); `job_id` may stand on the envelope instead."""

    type: ClassVar[str] = "job.cancel"

    job_id: Identifier
    reason: Remark | None = None


@attrs.frozen(kw_only=True)
class Cancelled:
    """The job is being cancelled; its terminal message follows (§7.4)."""

    type: ClassVar[str] = "job.cancelled"

    job_id: str
    reason: str | None = None


@attrs.frozen(kw_only=True)
class Subscribe:
    """A request to observe a job (§7.6)."""

    type: ClassVar[str] = "job.subscribe"

    job_id: Identifier
    from_event_seq: int | None = None
    history: bool = False


@attrs.frozen(kw_only=True)
class Subscribed:
    """What an observer may know of the job (§7.6)."""

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
    replayed: Json = None  # a boolean; some runtimes send a count


@attrs.frozen(kw_only=True)
class Unsubscribe:
    """The end of an observation (§7.6)."""

    type: ClassVar[str] = "job.unsubscribe"

    job_id: Identifier


@attrs.frozen(kw_only=True)
class JobEvent:
    """Something a job has to say (§8.1). A client takes it as it comes."""

    type: ClassVar[str] = "job.event"

    kind: str
    ts: str | None = None
    body: Json = None


def _is_inline(result: JobResult) -> bool:
    return result.result_id is None and result.output is None


@attrs.frozen(kw_only=True)
class JobResult:
    """A job's end in success (§7.3): its result inline, or the id of its chunks (§8.4)."""

    type: ClassVar[str] = "job.result"

    final_status: str = "success"
    result: Json = attrs.field(default=None, metadata={KEEP_NULL: _is_inline})
    result_id: str | None = None
    result_size: int | None = None
    summary: str | None = None
    completed_at: str | None = None
    output: Json = None  # some runtimes call the inline result so

    @property
    def value(self) -> Json:
        """The inline result."""
        return self.output if self.result is None else self.result


_STATUS_OF_CODE: Mapping[str, str] = {"CANCELLED": "cancelled", "TIMEOUT": "timed_out"}


def _status_of_code(body: JobErrorBody) -> str:
    return _STATUS_OF_CODE.get(body.code, "error")


@attrs.frozen(kw_only=True)
class JobErrorBody:
    """A job's end in anything else (§7.3, §12)."""

    type: ClassVar[str] = "job.error"

    code: str
    final_status: str = attrs.field(default=attrs.Factory(_status_of_code, takes_self=True))
    message: str = ""
    retryable: bool = False
    details: JsonObject | None = None
    completed_at: str | None = None

    @classmethod
    def of(cls, error: ArcpError, *, completed_at: str) -> JobErrorBody:
        """Make the end of a job that the error is."""
        return cls(**error.payload(), completed_at=completed_at)
