"""Identifiers and secrets.

The ids of envelopes are bare ULIDs in upper case, all other ids are a prefix and a ULID: the one
form that the id patterns of all known peers accept.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from typing import Final

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
_PAIRS: Final = [high + low for high in _ALPHABET for low in _ALPHABET]

# A ULID is 26 digits of 5 bits. The lowest four digits are looked up for each id; the others are
# kept, because they change only when the clock does.
_LOW_BITS: Final = 20
_LOW_MASK: Final = (1 << _LOW_BITS) - 1
_HEAD_DIGITS: Final = 22


class _Ulids:
    """A source of ULIDs that always increase, also when the clock steps back or stands still."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # agents may run code in threads
        self._millis = -1
        self._last = 0
        self._head = ""

    def next(self) -> str:
        millis = time.time_ns() // 1_000_000
        with self._lock:
            if millis > self._millis:
                self._millis = millis
                fresh = millis << 80 | int.from_bytes(os.urandom(10), "big")
                self._set(max(fresh, self._last + 1))
            elif self._last & _LOW_MASK == _LOW_MASK:
                self._set(self._last + 1)
            else:
                self._last += 1
            low = self._last & _LOW_MASK
            return self._head + _PAIRS[low >> 10] + _PAIRS[low & 0x3FF]

    def _set(self, value: int) -> None:
        self._last = value
        high = value >> _LOW_BITS
        shifts = range(5 * (_HEAD_DIGITS - 1), -1, -5)
        self._head = "".join(_ALPHABET[high >> shift & 31] for shift in shifts)


_ulids: Final = _Ulids()  # one per process, so that all its ids increase


def new_id(prefix: str = "") -> str:
    """Return a new ULID with a prefix such as `sess_` or `job_`; later ids sort later."""
    return prefix + _ulids.next()


def resume_token() -> str:
    """Return a new resume token: 256 bits from the operating system (§6.3)."""
    return f"rt_{secrets.token_hex(32)}"


def token_digest(token: str) -> bytes:
    """Return the digest of a token; digests are stored and compared, never the tokens."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
