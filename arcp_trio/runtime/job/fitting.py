"""Cutting what an agent gives down to what an event or a question can hold."""

from __future__ import annotations

from typing import Final

import attrs

from arcp_trio.runtime.limits import Limits
from arcp_trio.wire.json import MAX_DEPTH, JsonObject, JsonValue, dumps, is_list, is_object

MOST_NAME: Final = 200
"""Characters of a name or a title that an event has."""

_DEPTH: Final = MAX_DEPTH - 8
"""Levels of nesting in a part of an event."""
_VALUES: Final = 20_000
"""Values in a part of an event, as programs that read events bound these, too."""
_LEAF: Final = 26
"""Bytes of a number, at most, or of another value that is not text."""


def room(limits: Limits) -> int:
    """Return how many bytes the large part of an event may have."""
    return max(limits.frame_bytes_out // 2, 64)


@attrs.frozen
class Fitted:
    """A value that fits into an event."""

    value: JsonValue
    size: int
    """Its size as JSON, in bytes, at most."""
    truncated: bool

    @property
    def note(self) -> JsonObject:
        """The field of an event that says whether something is missing."""
        return {"truncated": True} if self.truncated else {}


def fitted(value: JsonValue, most_bytes: int) -> Fitted:
    """Return a copy of a value, without what is beyond a size or a depth."""
    cutting = _Cutting(most_bytes)
    copy = cutting.copy(value, _DEPTH)
    return Fitted(copy, most_bytes - cutting.left, cutting.truncated)


def fitted_text(text: str, most_bytes: int) -> str:
    """Return as much of the beginning of a text as has this size as JSON."""
    piece = text[:most_bytes]
    while (size := len(dumps(piece))) > most_bytes and piece:
        # What is cut off may be denser than the rest, so a little more.
        piece = piece[: len(piece) * most_bytes // size * 7 // 8]
    return piece


class _Cutting:
    """One value being copied, up to a bound."""

    def __init__(self, most_bytes: int) -> None:
        self.left = most_bytes
        self.truncated = False
        self._values = _VALUES

    def copy(self, value: JsonValue, depth: int) -> JsonValue:
        if isinstance(value, str):
            return self._text(value)
        if is_object(value):
            return self._object(value, depth)
        if is_list(value):
            return self._list(value, depth)
        self.left -= _LEAF
        return value

    def _text(self, text: str) -> str:
        kept = fitted_text(text, max(self.left, 2))
        self.truncated |= len(kept) < len(text)
        self.left -= len(dumps(kept))
        return kept

    def _object(self, value: JsonObject, depth: int) -> JsonValue:
        copy: JsonObject = {}
        if not self._may_enter(depth):
            return None
        for key, item in value.items():
            size = len(dumps(key)) + 2 if len(key) < self.left else self.left
            if not self._has_room(size):
                break
            self.left -= size
            copy[key] = self.copy(item, depth - 1)
        return copy

    def _list(self, value: list[JsonValue], depth: int) -> JsonValue:
        copy: list[JsonValue] = []
        if not self._may_enter(depth):
            return None
        for item in value:
            if not self._has_room(1):
                break
            self.left -= 1
            copy.append(self.copy(item, depth - 1))
        return copy

    def _may_enter(self, depth: int) -> bool:
        self.left -= 4  # two brackets, or null
        self.truncated |= depth <= 0
        return depth > 0

    def _has_room(self, size: int) -> bool:
        self._values -= 1
        has_room = self._values >= 0 and self.left - size >= _LEAF
        self.truncated |= not has_room
        return has_room
