"""Strict JSON: what goes out and what comes in is RFC 8259, within bounds (v1.0 §5.2).

msgspec reads and writes; this module refuses what msgspec lets pass. Reading, that is
integers beyond a signed 64-bit number and nesting beyond the bound. Writing, it is NaN (which
would become null), big integers, keys and values that are not JSON.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import accumulate
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from arcp_trio.wire.errors import InvalidRequest, clip

Json: TypeAlias = Any
"""Any JSON value, for the public edge only: what agents take and return, and what users read.

A program that indexes into such a value knows its shape better than a type checker does. Code
inside the package uses `JsonValue`, which has to be narrowed before it is used.
"""

if TYPE_CHECKING:
    JsonValue: TypeAlias = (
        bool | int | float | Decimal | str | "list[JsonValue]" | "dict[str, JsonValue]" | None
    )
    JsonLike: TypeAlias = (
        bool | int | float | Decimal | str | "Sequence[JsonLike]" | "Mapping[str, JsonLike]" | None
    )
else:
    # cattrs and msgspec read annotations at run time, and follow no recursive alias.
    JsonValue = Any
    """A JSON value as a decoder makes it: `isinstance` narrows it to `list` or `dict`."""
    JsonLike = Any
    """A value that `dumps` is asked to write, in containers that are only read.

    Covariant, unlike `JsonValue`: a `dict[str, list[str]]` is one.
    """

JsonObject: TypeAlias = dict[str, JsonValue]

MAX_DEPTH = 64  # levels of nesting, counted from the outermost value
LARGE = 256 * 1024  # characters; what is wrong in a larger text may be named without its place

_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1
# Of a text, all that its bounds are about: how many levels there may be, and how long numbers are.
_GLANCE = bytes.maketrans(b"123456789[", b"000000000{")
_MANY_DIGITS = b"0" * 19  # no shorter integer leaves 64 bits
_ENDLESS_NUMBER = re.compile(r"[0-9]{1000}")
_MAX_PATH = 256  # characters of a path that a message names


def plain(value: Json) -> Json:
    """Take a member of a `StrEnum`, or of another kind of strings or numbers, for what it is."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and value.__class__ is not bool:
        return int.__pos__(value)
    if isinstance(value, float):
        return float.__pos__(value)
    return value


_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=plain).encode
_decode = msgspec.json.Decoder().decode
_decode_exact = msgspec.json.Decoder(float_hook=Decimal).decode

# A fault found in a value: what is wrong, and the way to it, innermost step first.
_Fault = tuple[str, list[str]]


def loads(text: str | bytes, *, max_depth: int = MAX_DEPTH, root: str = "$") -> Json:
    """Read one JSON value; `InvalidRequest` says what is wrong with it and, if known, where.

    `root` names the value in that message, when it is part of a larger one.
    """
    try:
        text = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"not valid UTF-8 @ {root}") from None
    try:
        value = _read(_decode, text)
    except RecursionError:
        raise InvalidRequest(f"nested too deeply @ {root}") from None
    except (UnicodeEncodeError, msgspec.DecodeError):
        raise InvalidRequest(_diagnose(text, max_depth, root)) from None
    # Walking the value costs many times as much as decoding it; the text tells what is wrong.
    reason = _text_fault(text, max_depth)
    if reason is not None:
        fault = find_fault(value, max_depth, root) if len(text) <= LARGE else None
        raise InvalidRequest(fault or f"{reason} @ {root}")
    return value


def is_plain(text: str, max_depth: int) -> bool:
    """Whether a text is small, and at a glance within the bounds that a decoder does not have."""
    if len(text) > LARGE:
        return False
    seen = text.encode().translate(_GLANCE)
    return seen.count(b"{") <= max_depth and _MANY_DIGITS not in seen


def loads_exact(text: bytes) -> Json:
    """Read what `dumps` has written: what is no integer is a `Decimal`, with all of its digits."""
    return _decode_exact(text)


def _read(decode: Callable[[str], Json], text: str) -> Json:
    """Decode with the collector kept away from a large text's objects, of which none is garbage.

    It would look at all of them again and again, and take longer over it than decoding does.
    """
    if len(text) <= LARGE or not gc.isenabled():
        return decode(text)
    gc.disable()
    try:
        return decode(text)
    finally:
        gc.enable()


def _diagnose(text: str, max_depth: int, root: str) -> str:
    try:
        value = loads_lax(text)
    except ValueError as error:
        return f"{error} @ {root}"
    fault = find_fault(value, max_depth, root) if len(text) <= LARGE else None
    return fault or f"not valid JSON @ {root}"


# --- what a valid text shows of its value ----------------------------------------------------

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: 1 down, 1 up
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
# Not a part of a fraction or of an exponent, nor with one.
_LONG_INTEGER = re.compile(rb"(?<![0-9.eE])(?<![eE][+-])-?[0-9]{19,}(?![0-9.eE])")


def _text_fault(text: str, max_depth: int) -> str | None:
    """Name what in a valid text is beyond the bounds that its decoder does not have."""
    seen = text.encode().translate(_GLANCE)
    many_brackets = seen.count(b"{") > max_depth
    many_digits = _MANY_DIGITS in seen
    if not (many_brackets or many_digits):
        return None
    bare = _without_strings(text.encode())
    if many_brackets and _depth(bare) > max_depth:
        return "nested too deeply"
    if many_digits and any(map(_is_too_long, _LONG_INTEGER.finditer(bare))):
        return "integer beyond 64 bits"
    return None


def _without_strings(text: bytes) -> bytes:
    if b"\\" in text:
        text = text.replace(rb"\\", b"").replace(rb"\"", b"")
    return b"".join(text.split(b'"')[::2])


def _depth(bare: bytes) -> int:
    steps = memoryview(bare.translate(_STEPS, _NO_BRACKETS)).cast("b")
    return max(accumulate(steps), default=0)


def _is_too_long(number: re.Match[bytes]) -> bool:
    digits = number[0]
    return len(digits) > len(str(_MIN_INT)) or not _MIN_INT <= int(digits) <= _MAX_INT


def loads_lax(text: str) -> Json:
    """Read what is nearly JSON, to find out what is wrong with it; `ValueError` if it is not.

    NaN, numbers out of bounds and lone surrogates pass: `find_fault` tells where they are.
    """
    endless = _ENDLESS_NUMBER.search(text)
    try:
        read = partial(json.loads, parse_int=_read_int if endless else None)
        return _read(read, text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"not valid JSON: {clip(str(error))}") from None


def _read_int(digits: str) -> int:
    # Reading a million digits takes quadratic time, and the number is refused anyway.
    return int(digits) if len(digits) <= len(str(_MIN_INT)) else _MAX_INT + 1


def dumps(value: Json, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Write one value as JSON; `ValueError` names what in it is not JSON, and where.

    A `Decimal` is written as the number it is, a member of a `StrEnum` as its string, a tuple as an
    array.
    """
    fault = _find_fault(value, max_depth)
    if fault is not None:
        raise ValueError(_describe(fault, "$"))
    try:
        return _encode(value)
    except UnicodeEncodeError:
        raise ValueError(find_fault(value, max_depth) or "lone surrogate @ $") from None


def find_fault(value: Json, max_depth: int, root: str = "$") -> str | None:
    """Name the first thing in the value that may not be sent or received, and its path."""
    fault = _find_fault(value, max_depth) or _find_surrogate(value)
    return None if fault is None else _describe(fault, root)


def _find_fault(value: Json, depth: int) -> _Fault | None:
    """Find the first thing in the value that is not JSON or out of bounds (surrogates apart)."""
    kind = value.__class__
    if kind is dict:
        items = value.items()
    elif kind is list or kind is tuple:
        items = enumerate(value)
    else:
        return _find_leaf_fault(value)
    if depth <= 0:
        return ("nested too deeply", [])
    for step, item in items:
        if kind is dict and not isinstance(step, str):
            return (f"key {clip(repr(step))} is not a string", [])
        if type(item) is not str:  # the common case, spared a call
            fault = _find_fault(item, depth - 1)
            if fault is not None:
                fault[1].append(_step(step))
                return fault
    return None


def _find_leaf_fault(value: Json) -> _Fault | None:
    kind = value.__class__
    if kind is str or kind is bool or value is None:
        return None
    if kind is not int and kind is not float and kind is not Decimal:
        plainly = plain(value)
        if plainly is not value:
            return _find_leaf_fault(plainly)
        return (f"{clip(kind.__qualname__)} is not a JSON value", [])
    if not is_finite(value):
        return ("number is not finite", [])
    # A decimal without an exponent is written as an integer, with the bounds of one.
    integral = kind is int or (kind is Decimal and value.as_tuple().exponent == 0)
    if integral and not _MIN_INT <= value <= _MAX_INT:
        return ("integer beyond 64 bits", [])
    return None


def is_finite(number: float | Decimal) -> bool:
    """Tell whether a reader with ordinary floating point can take the number."""
    if isinstance(number, int):
        return True
    if isinstance(number, Decimal) and not number.is_finite():
        return False  # asked first: a signalling NaN cannot be made a float
    return isfinite(number)


def _find_surrogate(value: Json) -> _Fault | None:
    """Find the lone surrogate that made encoding fail."""
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
        fault = _find_surrogate(item)
        if fault is not None:
            fault[1].append(_step(step))
            return fault
    return None


def is_unicode(text: str) -> bool:
    """Tell whether the text has no lone surrogates, and so can be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _step(key: str | int) -> str:
    if isinstance(key, str) and key.isidentifier():
        return f".{clip(key)}"
    return f"[{clip(repr(key))}]"


def _describe(fault: _Fault, root: str) -> str:
    reason, steps = fault
    return f"{reason} @ {root}{clip(''.join(reversed(steps)), _MAX_PATH)}"
