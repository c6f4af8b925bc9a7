"""Valid messages and byte streams, changed by a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence

from arcp_trio.wire.json import JsonObject
from tests.protocol.support import VALID, text_of

MESSAGES: Sequence[tuple[str, JsonObject]] = (
    *VALID,
    ("session.close", {"reason": "enough"}),
    ("session.bye", {"reason": "enough"}),
)
"""All messages that a client sends."""

_RUNTIMES = ("session.welcome", "session.error", "job.accepted", "job.event", "job.result", "x")
_NUMBERS = (b"1e999", b"-1", b"9" * 400, b"1.5", b"-0", b"9223372036854775808", b"0" * 20 + b"1")
_IDS = ("", "sess_x", "job_x", "../..", "x" * 10_000, "\x00", "é")


class Mutator:
    """Makes messages and byte streams, each from a valid one by a few changes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def message(self) -> bytes:
        """Return the text of a message, or a broken part of it."""
        chance = self._random
        kind, payload = chance.choice(MESSAGES)
        if chance.random() < 0.15:
            kind = chance.choice([other for other, _ in MESSAGES] + list(_RUNTIMES))
        ids = {"id": f"fuzz {chance.random()}"}
        if chance.random() < 0.15:
            field = chance.choice(("id", "session_id", "job_id", "trace_id", "arcp"))
            ids[field] = chance.choice(_IDS)
        data = text_of(kind, payload, **ids).encode()
        for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
            data = chance.choice(self._text_changes())(data)
        return data

    def stream(self, data: bytes) -> bytes:
        """Return these bytes with a few of them changed."""
        for _ in range(self._random.choice((1, 1, 1, 2, 5))):
            data = self._random.choice(self._byte_changes())(data)
        return data

    def _byte_changes(self) -> list[Callable[[bytes], bytes]]:
        return [self._flip, self._truncate, self._repeat, self._swap, self._insert]

    def _text_changes(self) -> list[Callable[[bytes], bytes]]:
        return [*self._byte_changes(), self._number, self._nest, self._twice]

    def _span(self, data: bytes, most: int = 40) -> tuple[int, int]:
        start = self._random.randrange(len(data) + 1)
        return start, min(len(data), start + self._random.randrange(1, most))

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return b"\x80"
        at = self._random.randrange(len(data))
        return data[:at] + bytes((data[at] ^ 1 << self._random.randrange(8),)) + data[at + 1 :]

    def _truncate(self, data: bytes) -> bytes:
        return data[: self._random.randrange(len(data) + 1)]

    def _repeat(self, data: bytes) -> bytes:
        start, end = self._span(data)
        return data[:end] + data[start:]

    def _swap(self, data: bytes) -> bytes:
        start, end = self._span(data)
        return data[end:] + data[start:end] + data[:start]

    def _insert(self, data: bytes) -> bytes:
        at, _ = self._span(data)
        return data[:at] + self._random.randbytes(self._random.randrange(1, 9)) + data[at:]

    def _number(self, data: bytes) -> bytes:
        """Put a number in place of a value."""
        at = data.find(b":", self._span(data)[0]) + 1
        end = min(end for end in (data.find(b",", at), data.find(b"}", at), len(data)) if end >= at)
        return data[:at] + self._random.choice(_NUMBERS) + data[end:]

    def _nest(self, data: bytes) -> bytes:
        """Put a value deep into lists or objects."""
        depth = self._random.choice((1, 30, 60, 64, 70, 5_000))
        opening, closing = self._random.choice(((b"[", b"]"), (b'{"a":', b"}")))
        return data.replace(b": {", b": " + opening * depth + b"{", 1) + closing * depth

    def _twice(self, data: bytes) -> bytes:
        """Repeat a field with another value."""
        field = self._random.choice(("id", "type", "payload", "arcp"))
        return data.replace(b"{", b"{" + json.dumps(field).encode() + b": null, ", 1)
