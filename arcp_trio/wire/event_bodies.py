"""The bodies of events (§8.2): their classes are their schema; fields beyond it are kept."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Final, TypeAlias

import attrs

from arcp_trio.wire.faults import is_finite
from arcp_trio.wire.ids import is_sha256
from arcp_trio.wire.json import JsonObject, JsonValue
from arcp_trio.wire.rules import KEEP_NULL, NonEmpty, Rule, always

Number: TypeAlias = int | float | Decimal

LOG_LEVELS: Final = frozenset({"trace", "debug", "info", "warn", "error", "critical"})
ENCODINGS: Final = frozenset({"utf8", "base64"})

Level = Annotated[str, Rule("one of " + ", ".join(sorted(LOG_LEVELS)), LOG_LEVELS.__contains__)]
EncodingName = Annotated[str, Rule("one of utf8, base64", ENCODINGS.__contains__)]
Sha256 = Annotated[str, Rule("64 hex digits", is_sha256)]
Count = Annotated[int, Rule("an integer that is not negative", lambda number: number >= 0)]
Finite = Annotated[Number, Rule("a finite number", is_finite)]
Quantity = Annotated[
    Number, Rule("a number that is not negative", lambda number: is_finite(number) and number >= 0)
]


@attrs.frozen(kw_only=True)
class LogBody:
    """A line of a log, for people."""

    level: Level
    message: str


@attrs.frozen(kw_only=True)
class ThoughtBody:
    """A piece of the agent's reasoning."""

    text: str


@attrs.frozen(kw_only=True)
class ToolCallBody:
    """A tool is being called."""

    tool: NonEmpty
    call_id: NonEmpty
    args: JsonValue = None


@attrs.frozen(kw_only=True)
class ToolResultBody:
    """The end of a tool call: exactly one of `result` and `error`."""

    call_id: NonEmpty
    result: JsonValue = attrs.field(default=None, metadata={KEEP_NULL: always})  # null is a result
    error: JsonObject | None = None


@attrs.frozen(kw_only=True)
class StatusBody:
    """The job has entered a phase."""

    phase: NonEmpty
    message: str | None = None


@attrs.frozen(kw_only=True)
class MetricBody:
    """A measurement; if its name begins with `cost.`, it is spending (§9.6)."""

    name: NonEmpty
    value: Finite
    unit: str | None = None
    dimensions: JsonObject | None = None


@attrs.frozen(kw_only=True)
class ArtifactRefBody:
    """Something that the job has made, and that is kept elsewhere."""

    uri: NonEmpty
    content_type: NonEmpty
    byte_size: Count | None = None
    sha256: Sha256 | None = None


@attrs.frozen(kw_only=True)
class DelegateBody:
    """Part of the work goes to another agent, with part of the lease (§10)."""

    delegate_id: NonEmpty
    agent: NonEmpty
    input: JsonValue = None
    lease_request: JsonObject | None = None
    lease_constraints: JsonObject | None = None


@attrs.frozen(kw_only=True)
class ProgressBody:
    """How far the job is (§8.2.1). `current` may exceed `total`: §8.2.1 only advises against it."""

    current: Quantity
    total: Quantity | None = None
    units: str | None = None
    message: str | None = None


@attrs.frozen(kw_only=True)
class ResultChunkBody:
    """A piece of a streamed result (§8.4)."""

    result_id: NonEmpty
    chunk_seq: Count
    data: str
    encoding: EncodingName
    more: bool


Body: TypeAlias = (
    LogBody
    | ThoughtBody
    | ToolCallBody
    | ToolResultBody
    | StatusBody
    | MetricBody
    | ArtifactRefBody
    | DelegateBody
    | ProgressBody
    | ResultChunkBody
)

KINDS: Final[Mapping[str, type[Body]]] = {
    "log": LogBody,
    "thought": ThoughtBody,
    "tool_call": ToolCallBody,
    "tool_result": ToolResultBody,
    "status": StatusBody,
    "metric": MetricBody,
    "artifact_ref": ArtifactRefBody,
    "delegate": DelegateBody,
    "progress": ProgressBody,
    "result_chunk": ResultChunkBody,
}
"""The kinds of §8.2, each with the class of its body."""
