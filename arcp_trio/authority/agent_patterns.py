"""Patterns of `agent.delegate`, which name agents with or without a version (§7.5, §9.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import attrs

from arcp_trio.authority.patterns import FRESH, STARS, Pattern

_REF: Final = re.compile(r"[a-z0-9][a-z0-9._-]*@[a-zA-Z0-9.+_-]+")


@attrs.frozen(repr=False)
class AgentPattern(Pattern):
    """A pattern that allows an agent if it matches its name, or its `name@version`.

    Names and versions have neither `/` nor `@`, so only a pattern of one segment and at most one
    `@` matches any.
    """

    def matches(self, form: str) -> bool:
        """Return whether the pattern matches a `name`, or allows a `name@version`."""
        name, at, _ = form.partition("@")
        return super().matches(form) or (at == "@" and super().matches(name))

    def witnesses(self) -> Iterator[str]:
        """Yield one agent for each way in which the pattern matches agents."""
        segments = [segment for segment in self.text.split("/") if segment != "**"]
        if len(segments) > 1:
            return
        parts = STARS.split(segments[0] if segments else "*")
        if parts == [""]:
            return
        whole = FRESH.join(parts)
        if "@" in whole:
            name, _, version = whole.partition("@")
            if name and version and "@" not in version:
                yield whole
            return
        yield f"{whole}@{FRESH}"
        for place in range(1, len(parts)):  # a star may match the @ and what is around it
            before, after = FRESH.join(parts[:place]), FRESH.join(parts[place:])
            yield f"{before}{FRESH}@{FRESH}{after}"

    @property
    def can_match(self) -> bool:
        """Whether the pattern can allow any agent."""
        examples = (witness.replace(FRESH, "a") for witness in self.witnesses())
        return any(_REF.fullmatch(example) for example in examples)
