"""What the input of a job may be whose agent speaks ACP."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

import attrs

from arcp_trio.wire.errors import InvalidInput, clip
from arcp_trio.wire.json import JsonObject, JsonValue, is_list, is_object

_FIELDS: Final = ("prompt", "cwd", "session")

Content: TypeAlias = str | list[JsonObject]
"""What an agent is prompted with: text, or content blocks of ACP."""


@attrs.frozen
class JobInput:
    """What a client asks of an agent."""

    prompt: Content
    cwd: str | None = None
    """The folder to work in."""
    session: str | None = None
    """The id of an earlier job, whose conversation goes on."""


def read_input(value: JsonValue) -> JobInput:
    """Return what a job's input asks for.

    Raises:
        InvalidInput: names what is wrong with it.
    """
    if isinstance(value, str):
        return JobInput(_not_empty(value, "$"))
    if not is_object(value):
        raise InvalidInput('the input must be a text, or an object with "prompt" in it @ $')
    unknown = next((name for name in value if name not in _FIELDS), None)
    if unknown is not None:
        raise InvalidInput(f"there is no field {clip(repr(unknown))}: {', '.join(_FIELDS)} @ $")
    cwd = _text_in(value, "cwd")
    if cwd is not None and (not Path(cwd).is_absolute() or "\0" in cwd):
        raise InvalidInput("expected an absolute path @ $.cwd")
    return JobInput(_prompt_in(value), cwd, _text_in(value, "session"))


def _prompt_in(value: JsonObject) -> Content:
    prompt = value.get("prompt")
    if isinstance(prompt, str):
        return _not_empty(prompt, "$.prompt")
    if not is_list(prompt):
        raise InvalidInput("expected a text, or a list of content blocks @ $.prompt")
    blocks: list[JsonObject] = []
    for index, block in enumerate(prompt):
        if not is_object(block) or not isinstance(block.get("type"), str):
            raise InvalidInput(f'expected an object with a text as "type" @ $.prompt[{index}]')
        blocks.append(block)
    if all(block["type"] == "text" and block.get("text") in ("", None) for block in blocks):
        _not_empty("", "$.prompt")
    return blocks


def _not_empty(prompt: str, path: str) -> str:
    if not prompt.strip():
        raise InvalidInput(f"the prompt is empty: say what the agent is to do @ {path}")
    return prompt


def _text_in(value: JsonObject, name: str) -> str | None:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise InvalidInput(f"expected a text @ $.{name}")
    return text
