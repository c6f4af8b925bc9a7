"""Identifiers and secrets.

The ids of envelopes are bare ULIDs in upper case, all other ids are a prefix and a ULID: the one
form that the id patterns of all known peers accept.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
_PAIRS: Final = [high + low for high in _ALPHABET for low in _ALPHABET]

# A ULID is 26 digits of 5 bits: 48 bits of time and 80 others. The lowest six digits are looked up
# for each id; the others are kept, because they change only when the clock does or on a carry.
_LOW_BITS: Final = 30
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
_HEAD_PAIRS: Final = 10
_STEP_BITS: Final = 20
_STEPS_AT_ONCE: Final = 1024

_SHA256: Final = re.compile("[0-9a-fA-F]{64}")


class _Ulids:
    """A source of ULIDs that always increase, even when the clock steps back or stands still.

    Each is further than the one before by a random step, so that nobody can count on to the next.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # agents may run code in threads
        self._millis = -1
        self._high = 0
        self._low = 0
        self._head = ""
        self._steps = _steps()

    def next(self) -> str:
        millis = time.time_ns() // 1_000_000
        with self._lock:
            low = self._low + next(self._steps)
            if millis > self._millis:
                self._millis = millis
                fresh = millis << 80 | int.from_bytes(os.urandom(10), "big")
                self._begin(max(fresh, (self._high << _LOW_BITS) + low))
            elif low > _LOW_MASK:
                self._begin((self._high << _LOW_BITS) + low)
            else:
                self._low = low
            low = self._low
            return self._head + _PAIRS[low >> 20] + _PAIRS[low >> 10 & 0x3FF] + _PAIRS[low & 0x3FF]

    def _begin(self, value: int) -> None:
        self._high, self._low = value >> _LOW_BITS, value & _LOW_MASK
        pairs = range(10 * (_HEAD_PAIRS - 1), -1, -10)
        self._head = "".join([_PAIRS[self._high >> shift & 0x3FF] for shift in pairs])


def _steps() -> Iterator[int]:
    while True:
        drawn = memoryview(os.urandom(4 * _STEPS_AT_ONCE)).cast("I")
        for step in drawn:
            yield (step >> (32 - _STEP_BITS)) + 1


_ulids: Final = _Ulids()  # one per process, so that all its ids increase


def new_id(prefix: str = "") -> str:
    """Return a new ULID with a prefix such as `sess_` or `job_`; later ids sort later."""
    return prefix + _ulids.next()


def stable_id(prefix: str, *parts: str) -> str:
    """Return an id that is always the same for these parts, and looks like any other."""
    drawn = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    value = int.from_bytes(drawn[:16], "big")
    return prefix + "".join(_ALPHABET[value >> shift & 31] for shift in range(125, -5, -5))


def resume_token() -> str:
    """Return a new resume token: 256 bits from the operating system (§6.3)."""
    return f"rt_{secrets.token_hex(32)}"


def token_digest(token: str) -> bytes:
    """Return the digest of a token; digests are stored and compared, never the tokens."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def is_sha256(text: str) -> bool:
    """Whether this is a SHA-256 in hexadecimal, such as the digest of a token."""
    return _SHA256.fullmatch(text) is not None
