"""A second implementation of patterns, slow, that shares no code with the first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from hypothesis import strategies as st


def oracle(pattern: str, form: str) -> bool:
    """Return whether a pattern matches, by trying everything."""
    return _segments_match(pattern.split("/"), form.split("/"))


def _segments_match(pattern: Sequence[str], form: Sequence[str]) -> bool:
    if not pattern:
        return not form
    if pattern[0] == "**":
        return any(_segments_match(pattern[1:], form[taken:]) for taken in range(len(form) + 1))
    if not form or not _segments_match(pattern[1:], form[1:]):
        return False
    if set(pattern[0]) == {"*"} and not form[0]:
        return False
    return _characters_match(pattern[0], form[0])


def _characters_match(pattern: str, segment: str) -> bool:
    if not pattern:
        return not segment
    if pattern[0] == "*":
        return any(
            _characters_match(pattern[1:], segment[taken:]) for taken in range(len(segment) + 1)
        )
    return segment[:1] == pattern[0] and _characters_match(pattern[1:], segment[1:])


def _written(segments: list[str], start: str) -> str:
    return start + "/".join(segments)


_segment = st.sampled_from(["**", "**", "*", "a", "b", "a*", "*b", "a*b", "*a*", "ab", "***"])
_start = st.sampled_from(["", "", "/", "a:/", "a://", "*://"])

patterns = st.builds(_written, st.lists(_segment, min_size=1, max_size=5), _start)
"""Small patterns of every shape."""

STRINGS = ["".join(letters) for size in range(7) for letters in product("ab/:", repeat=size)]
"""All short strings of the letters of `patterns`."""
