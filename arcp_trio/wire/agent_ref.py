"""Agent references: a name, or a name and a version (§7.5)."""

from __future__ import annotations

import re
from typing import Final

import attrs

from arcp_trio.wire.errors import InvalidRequest, clip

MAX_LENGTH: Final = 256
"""Characters of a reference."""

_GRAMMAR: Final = re.compile(r"(?P<name>[a-z0-9][a-z0-9._-]*)(?:@(?P<version>[a-zA-Z0-9.+_-]+))?")


@attrs.frozen
class AgentRef:
    """An agent, named with or without its version."""

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


def parse_agent_ref(text: str) -> AgentRef:
    """Read a reference; `InvalidRequest` if it is too long, or not in the grammar of §7.5."""
    if len(text) > MAX_LENGTH:
        raise InvalidRequest(f"agent reference is longer than {MAX_LENGTH} characters")
    match = _GRAMMAR.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            f"{clip(repr(text))} is not an agent reference: write name or name@version; a name has"
            " a-z, 0-9, . _ - and begins with a letter or digit, a version may have A-Z and +, too"
        )
    return AgentRef(match["name"], match["version"])
