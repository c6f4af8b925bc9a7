"""Patterns of a lease (§9.2): globs over segments, matched without backtracking.

A pattern is anchored and split at `/`. A segment that is exactly `**` stands for zero or more
segments, empty ones included. Any other run of `*` stands for any characters but `/`, and in a
segment of nothing else for at least one. All other characters are literal.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, Self, TypeAlias

import attrs

from arcp_trio.wire.errors import clip

FILES: Final = frozenset({"fs.read", "fs.write"})
URLS: Final = "net.fetch"

MAX_LENGTH: Final = 4096
"""Characters of a pattern, at most."""
MAX_SEGMENTS: Final = 128
"""Segments of a pattern, at most: a match takes at most this number times the form's segments."""

STARS: Final = re.compile(r"\*+")

FRESH: Final = "\0"
"""A character that no pattern has: control characters are refused."""

_MAY_BE_EMPTY: Final = 2
"""How many segments at the beginning may be empty; see `_may_be_empty`."""

_Segment: TypeAlias = tuple[str, ...]  # the literal parts between its stars
_Block: TypeAlias = Sequence[_Segment]  # the segments between two `**`

_ONLY_STAR: Final = ("", "")
# `/a/**` also matches `/a`: the slash before a `**` is not in every match.
_LITERAL_START: Final = re.compile(r".*?(?=/?\*\*(?:/|\Z)|\*|\Z)", re.DOTALL)


@attrs.frozen(repr=False)
class Pattern:
    """One pattern; patterns of the same text are equal."""

    text: str
    _blocks: Sequence[_Block] = attrs.field(eq=False)
    # Most forms that do not match lack one of these two.
    prefix: str = attrs.field(eq=False)
    """The beginning of every match."""
    part: str = attrs.field(eq=False)
    """A part of every match."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a pattern; `ValueError` says why the text is not one."""
        check_characters(text)
        blocks: list[list[_Segment]] = [[]]
        for segment in _segments(text):
            if segment == "**":
                blocks.append([])
            else:
                blocks[-1].append(tuple(STARS.split(segment)))
        parts = (part for block in blocks for segment in block for part in segment)
        return cls(text, blocks, prefix=_literal_start(text), part=max(parts, key=len, default=""))

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"

    def matches(self, form: str) -> bool:
        """Return whether the pattern matches the whole of a canonical form."""
        if not self.may_match(form):
            return False
        segments = form.split("/")
        head, *between = self._blocks
        if not between:
            return len(segments) == len(head) and _fits(head, segments, 0)
        tail = between.pop()
        at, stop = len(head), len(segments) - len(tail)
        if at > stop or not _fits(head, segments, 0) or not _fits(tail, segments, stop):
            return False
        # The leftmost place of a block leaves most room for the next one: no choice is revised.
        for block in between:
            last = stop - len(block)
            while at <= last and not _fits(block, segments, at):
                at += 1
            if at > last:
                return False
            at += len(block)
        return True

    def may_match(self, form: str) -> bool:
        """Return whether a form has what every match has; most forms that do not match lack it."""
        return form.startswith(self.prefix) and self.part in form

    def work(self, form: str) -> int:
        """Return the cost of `matches`, in characters of the pattern that are looked at.

        Text between two `**` may be tried at every segment.
        """
        between = self.text.rfind("**") - self.text.find("**")
        return len(self.text) + between * (form.count("/") + 1)

    def witnesses(self) -> Iterator[str]:
        """Yield the witnesses (`subset.py`): a pattern that matches all of them covers this one."""
        words: list[list[str]] = [[]]
        previous = ""
        for segment in self.text.split("/"):
            if segment != "**":
                words = [[*word, STARS.sub(FRESH, segment)] for word in words]
            elif previous != "**":
                words = [filled for word in words for filled in _filled(word)]
            previous = segment
        return map("/".join, words)


def _filled(word: list[str]) -> list[list[str]]:
    """Return the ways to fill a `**` after these segments."""
    if len(word) >= _MAY_BE_EMPTY:
        return [[*word, ""]]
    return [word, *_filled([*word, FRESH]), *_filled([*word, ""])]


def check_characters(text: str, limit: int = MAX_LENGTH) -> None:
    """Raise `ValueError` for characters that programs read in different ways; no name has them."""
    if not text:
        raise ValueError("empty")
    if len(text) > limit:
        raise ValueError(f"longer than {limit:,} characters")
    if "\\" in text:
        raise ValueError("has a backslash")
    if not text.isprintable() and any(unicodedata.category(c) in {"Cc", "Cs"} for c in text):
        raise ValueError("has a control character or half of a surrogate pair")


def _segments(text: str) -> Sequence[str]:
    segments = text.split("/")
    if len(segments) > MAX_SEGMENTS:
        raise ValueError(f"more than {MAX_SEGMENTS} segments")
    for place, segment in enumerate(segments):
        if segment in {".", ".."}:
            raise ValueError(f"{clip(repr(text))} has a segment {segment!r}")
        if segment == "" and not _may_be_empty(segments, place):
            raise ValueError(f"{clip(repr(text))} has an empty segment: a slash at its end, or two")
    return segments


def _may_be_empty(segments: Sequence[str], place: int) -> bool:
    """Return whether an empty segment begins a path, or is in `://`; subset.py relies on this."""
    return place + 1 < len(segments) and (place == 0 or (place == 1 and segments[0].endswith(":")))


def _literal_start(text: str) -> str:
    match = _LITERAL_START.match(text)
    assert match is not None
    return match.group()


def _fits(block: _Block, segments: Sequence[str], at: int) -> bool:
    for parts in block:  # not all(…), which takes twice as long
        if not _segment_matches(parts, segments[at]):
            return False
        at += 1
    return True


def _segment_matches(parts: _Segment, segment: str) -> bool:
    if len(parts) == 1:
        return parts[0] == segment
    if parts == _ONLY_STAR:
        return segment != ""
    first, last = parts[0], parts[-1]
    at, stop = len(first), len(segment) - len(last)
    if at > stop or not (segment.startswith(first) and segment.endswith(last)):
        return False
    for part in parts[1:-1]:
        found = segment.find(part, at, stop)
        if found < 0:
            return False
        at = found + len(part)
    return True
