"""A question of a job to people, as it stands in its event and in listings."""

from __future__ import annotations

from typing import Final

import attrs

from arcp_trio.wire.json import JsonObject, JsonValue
from arcp_trio.wire.rules import NonEmpty

QUESTION: Final = "x-vendor.arcp-trio.question"
"""The kind of the event with a question."""

HUMAN_ASK: Final = "human.ask"
"""The tool that stands for people: in the lease, in `tool_call`, and in `tool_result`."""


APPROVAL: Final = "approval"
"""The kind of a question by which a job asks for an approval, and the phase of the job then."""
ALLOW: Final = "allow"
DENY: Final = "deny"
"""The answers to it."""


@attrs.frozen(kw_only=True)
class Change:
    """What a call that waits for an approval would change in a file."""

    path: str
    diff: str
    """Hunks of a unified diff, without the two lines that name the file."""
    note: str | None = None
    """What the diff does not show, in words."""


@attrs.frozen(kw_only=True)
class Shown:
    """What a person who decides on an approval has to see beside the call's arguments."""

    cwd: str | None = None
    """The folder in which the call works."""
    command: str | None = None
    """The command line that would run, with all its words."""
    changes: list[Change] | None = None
    """What would be written, by file."""


@attrs.frozen(kw_only=True)
class QuestionBody:
    """A question; what was not given is left out. Without options and schema any JSON will do."""

    question_id: NonEmpty
    """The `call_id` of the question's tool call."""
    prompt: str
    options: list[str] | None = None
    """The texts of which the answer is one."""
    schema: JsonObject | None = None
    """What the answer must be, in JSON Schema."""
    to: str | None = None
    """The person or the group that is meant to answer, for people to read."""
    expires_at: str | None = None
    kind: str | None = None
    """`approval`, if the job asks for leave to do what its lease allows on that condition."""
    capability: str | None = None
    """The capability that an approval asks for."""
    targets: list[str] | None = None
    """What an approval is about."""
    tool: str | None = None
    args: JsonValue = None
    """The tool call that waits for an approval."""
    shown: Shown | None = None
    for_job: str | None = None
    """What the scope `job` allows, in words."""
    truncated: bool | None = None
    """True if `args` are not whole."""

    @property
    def wants_text(self) -> bool:
        """Whether an answer is a text: what a person types is taken as it is."""
        return self.options is not None or (self.schema or {}).get("type") == "string"
