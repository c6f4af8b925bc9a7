"""Identifiers and secrets.

Envelope ids are bare upper-case ULIDs and everything else is a prefix and a ULID: the one form
that the id patterns of all known peers accept.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
_PAIRS = [high + low for high in _ALPHABET for low in _ALPHABET]

# A ULID is 26 digits of 5 bits. The lowest four digits are looked up anew for each id, the
# others change only when the clock does.
_LOW_BITS = 20
_LOW_MASK = (1 << _LOW_BITS) - 1
_HEAD_DIGITS = 22


class _Ulids:
    """A source of ULIDs that only rise, also when the clock steps back or stands still."""

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


_ulids = _Ulids()  # one per process: ids rise across all who ask for one


def new_id(prefix: str = "") -> str:
    """Make a fresh ULID behind the prefix (`sess_`, `job_` …); later ids sort later."""
    return prefix + _ulids.next()


def resume_token() -> str:
    """Make a fresh resume token: 256 bits from the operating system (§6.3)."""
    return f"rt_{secrets.token_hex(32)}"


def token_digest(token: str) -> bytes:
    """Digest a token: what is stored and compared is never the token itself."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
