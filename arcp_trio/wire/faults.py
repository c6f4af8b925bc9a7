"""What may be neither sent nor received: values that are not JSON, or beyond its bounds.

Values are looked through before they are written. After a text was read, the text is looked at and
not its value, which costs a small part of the time; the value only if the text is refused.
"""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import accumulate
from math import isfinite
from typing import Any, Final, TypeAlias

from arcp_trio.wire.errors import clip

LARGE: Final = 256 * 1024
"""Characters. A message about a larger text may name a problem without its path."""

MIN_INT: Final = -(2**63)
MAX_INT: Final = 2**63 - 1
_MAX_PATH: Final = 256  # characters of a path that a message names

Fault: TypeAlias = tuple[str, list[str]]
"""What is wrong in a value, and the path to it, innermost step first."""


def describe(fault: Fault, root: str) -> str:
    """Describe a fault in the value at `root`, in a few words."""
    reason, steps = fault
    return f"{reason} @ {root}{clip(''.join(reversed(steps)), _MAX_PATH)}"


def find_fault(value: object, max_depth: int, root: str = "$") -> str | None:
    """Describe the first thing in the value that may not be sent or received."""
    fault = find_in_value(value, max_depth) or find_surrogate(value)
    return None if fault is None else describe(fault, root)


# --- in a value ------------------------------------------------------------------------------


def find_in_value(value: Any, depth: int) -> Fault | None:  # noqa: ANN401 - anything may be given
    """Find the first thing in the value that is not JSON or out of bounds, surrogates apart."""
    kind = value.__class__
    if kind is dict:
        items = value.items()
    elif kind is list or kind is tuple:
        items = enumerate(value)
    else:
        return _find_in_leaf(value)
    if depth <= 0:
        return ("nested too deeply", [])
    for step, item in items:
        if kind is dict and not isinstance(step, str):
            return (f"key {clip(repr(step))} is not a string", [])
        within = item.__class__  # most items are plain, and cost no call
        if not (
            within is str
            or (within is int and MIN_INT <= item <= MAX_INT)
            or (within is float and isfinite(item))
            or within is bool
            or item is None
            or (depth > 1 and (within is list or within is dict) and not item)
        ):
            fault = find_in_value(item, depth - 1)
            if fault is not None:
                fault[1].append(_step(step))
                return fault
    return None


def _find_in_leaf(value: Any) -> Fault | None:  # noqa: ANN401
    kind = value.__class__
    if kind is str or kind is bool or value is None:
        return None
    if kind is not int and kind is not float and kind is not Decimal:
        known = plain(value)
        if known is not value:
            return _find_in_leaf(known)
        return (f"{clip(kind.__qualname__)} is not a JSON value", [])
    if not is_finite(value):
        return ("number is not finite", [])
    # A decimal without an exponent is written as an integer, with the bounds of one.
    integral = kind is int or (kind is Decimal and value.as_tuple().exponent == 0)
    if integral and not MIN_INT <= value <= MAX_INT:
        return ("integer beyond 64 bits", [])
    return None


def find_surrogate(value: Any) -> Fault | None:  # noqa: ANN401
    """Find the first lone surrogate in the value."""
    kind = value.__class__
    if isinstance(value, str):
        return None if is_unicode(value) else ("lone surrogate", [])
    if kind is dict:
        if not all(map(is_unicode, value)):
            return ("lone surrogate in a key", [])
        items = value.items()
    elif kind is list or kind is tuple:
        items = enumerate(value)
    else:
        return None
    for step, item in items:
        fault = find_surrogate(item)
        if fault is not None:
            fault[1].append(_step(step))
            return fault
    return None


def _step(key: str | int) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f".{clip(key)}"
    return f"[{clip(repr(key))}]"


def plain(value: object) -> object:
    """Return the plain string or number that a member of a `StrEnum`, for example, is."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and value.__class__ is not bool:
        return int.__pos__(value)
    if isinstance(value, float):
        return float.__pos__(value)
    return value


def is_finite(number: float | Decimal) -> bool:
    """Return whether the number is finite, even for a reader that makes a float of it."""
    if isinstance(number, int):
        return True
    if isinstance(number, Decimal) and not number.is_finite():
        return False  # checked first: a signalling NaN cannot be made a float
    return isfinite(number)


def is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogates, and so can be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- in a valid text -------------------------------------------------------------------------

# Reduces a text to what its bounds are about: brackets that may open a level, digits, exponents.
_GLANCE: Final = bytes.maketrans(b"123456789[E", b"000000000{e")
_MANY_DIGITS: Final = b"0" * 19  # no shorter integer exceeds 64 bits
# In numbers that may be larger than any float, as they look at a glance.
_VAST: Final = (b"e000", b"e+000", b"0" * 300)
_LONG_STRING: Final = 64
"""Bytes; to take strings out that are shorter takes longer than to look at them."""
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: 1 down, 1 up
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))


def _above(digits: str) -> str:
    """Return an expression for the numbers of as many digits that are greater."""
    first, rest = digits[0], digits[1:]
    ways = [] if first == "9" else [f"[{int(first) + 1}-9][0-9]{{{len(rest)}}}"]
    return "(?:" + "|".join([*ways, *([first + _above(rest)] if rest else [])]) + ")"


# Neither with a fraction or an exponent, nor a part of one. A search is one step in C, however many
# long integers there are; one that begins with a digit to look for is many times as fast.
_BEYOND_19_DIGITS: Final = re.compile(rb"(?<![0-9.eE])(?<![eE][+-])[0-9]{20,}(?![0-9.eE])")
_OF_19_DIGITS: Final = re.compile(
    f"9(?<![0-9.eE]9)(?<![eE][+-]9){_above(str(MAX_INT)[1:])}(?![0-9.eE])(?<!{MIN_INT})".encode()
)


def is_plain(text: str, max_depth: int) -> bool:
    """Return whether a text is small, and at a glance within the bounds that msgspec lacks."""
    if len(text) > LARGE:
        return False
    seen = text.encode().translate(_GLANCE)
    return seen.count(b"{") <= max_depth and _MANY_DIGITS not in seen


def has_more_values(text: str, most: float) -> bool:
    """Return whether a text has more values than `most`, by what stands before or after a value.

    Commas and opening brackets are counted: an empty array or object counts as two values.
    """
    if len(text) < most:
        return False
    seen = text.encode(errors="surrogatepass")
    if _marks(seen) < most:  # in most texts, strings have few of these characters
        return False
    bare = _without_escapes(seen)
    # Two quotes are one string, and half of the strings may be keys.
    return bare.count(b'"') > 4 * most or _marks(b"".join(bare.split(b'"')[::2])) >= most


def _marks(seen: bytes) -> int:
    return seen.count(b",") + seen.count(b"[") + seen.count(b"{")


def text_fault(text: str, max_depth: int) -> str | None:
    """Name what in a valid text exceeds the bounds that its decoder lacks; None if nothing does."""
    data = text.encode()
    return _fault_seen(data, data.translate(_GLANCE), max_depth)


def is_within_bounds(text: bytes, max_depth: int) -> bool:
    """Return whether a text of valid syntax is certainly within all bounds, also its decoder's."""
    bare = _without_long_strings(text)
    seen = bare.translate(_GLANCE)
    if any(part in seen for part in _VAST):
        return False
    return _fault_seen(bare, seen, max_depth) is None


def _fault_seen(text: bytes, seen: bytes, max_depth: int) -> str | None:
    many_brackets = seen.count(b"{") > max_depth
    many_digits = _MANY_DIGITS in seen
    if not (many_brackets or many_digits):
        return None
    bare = _without_strings(text)
    if many_brackets and _depth(bare) > max_depth:
        return "nested too deeply"
    if many_digits and _has_long_integer(bare):
        return "integer beyond 64 bits"
    return None


def _has_long_integer(bare: bytes) -> bool:
    if _OF_19_DIGITS.search(bare):
        return True
    return _MANY_DIGITS + b"0" in bare.translate(_GLANCE) and bool(_BEYOND_19_DIGITS.search(bare))


def _without_long_strings(text: bytes) -> bytes:
    """Return a valid text without its strings, if that leaves little of it to look at."""
    if len(text) <= LARGE or b"\\" in text or text.count(b'"') > len(text) // _LONG_STRING:
        return text
    return b'""'.join(text.split(b'"')[::2])


def _without_strings(text: bytes) -> bytes:
    return b"".join(_without_escapes(text).split(b'"')[::2])


def _without_escapes(text: bytes) -> bytes:
    return text.replace(rb"\\", b"").replace(rb"\"", b"") if b"\\" in text else text


def _depth(bare: bytes) -> int:
    steps = memoryview(bare.translate(_STEPS, _NO_BRACKETS)).cast("b")
    return max(accumulate(steps), default=0)
