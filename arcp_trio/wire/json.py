"""Strict JSON: what is sent and what is received is RFC 8259, within bounds (v1.0 §5.2).

msgspec reads and writes; this module refuses what msgspec lets pass (`faults.py`). When reading,
these are integers beyond signed 64-bit numbers, and nesting beyond the bound. When writing, these
are NaN (which would become null), integers beyond 64 bits, and keys and values that are not JSON.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard

import attrs
import msgspec

from arcp_trio.wire.errors import InvalidRequest, clip
from arcp_trio.wire.faults import (
    LARGE,
    MAX_INT,
    MIN_INT,
    describe,
    find_fault,
    find_in_value,
    find_surrogate,
    is_within_bounds,
    plain,
    text_fault,
)

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

MAX_DEPTH: Final = 64
"""Levels of nesting, counted from the outermost value."""
_ENDLESS_NUMBER: Final = re.compile(r"[0-9]{1000}")

_encode = msgspec.json.Encoder(decimal_format="number", enc_hook=plain).encode
_decode = msgspec.json.Decoder().decode
_decode_exact = msgspec.json.Decoder(float_hook=Decimal).decode


def loads(text: str | bytes, *, max_depth: int = MAX_DEPTH, root: str = "$") -> JsonValue:
    """Read one JSON value.

    Args:
        root: the path of the value, if it is part of a larger one.

    Raises:
        InvalidRequest: names what is wrong with it and, if known, where.
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
    # Walking the value would cost many times as much as decoding it, so the text is looked at.
    reason = text_fault(text, max_depth)
    if reason is not None:
        fault = find_fault(value, max_depth, root) if len(text) <= LARGE else None
        raise InvalidRequest(fault or f"{reason} @ {root}")
    return value


@attrs.frozen
class JsonText:
    """A JSON value that is as valid as one that was read, but not decoded.

    As objects it may take ten times the room, and many milliseconds to be made.
    """

    text: bytes

    @classmethod
    def checked(cls, text: bytes, *, max_depth: int = MAX_DEPTH, root: str = "$") -> JsonText:
        """Keep a text of correct syntax; refuse what `loads` refuses.

        Raises:
            InvalidRequest: names what is wrong with it and, if known, where.
        """
        if not is_within_bounds(text, max_depth):
            loads(text, max_depth=max_depth, root=root)
        return cls(text)

    @property
    def value(self) -> JsonValue:
        """The value, made each time."""
        return _read(_decode, self.text.decode())


def loads_object(text: bytes) -> JsonObject:
    """Read an object that this program has written."""
    value = loads(text)
    assert is_object(value), "it was written as an object"
    return value


def loads_exact(text: bytes) -> JsonObject:
    """Read an object as `loads_object` does, with a `Decimal` for each number with a fraction."""
    value: JsonObject = _decode_exact(text)
    return value


def _read(decode: Callable[[str], JsonValue], text: str) -> JsonValue:
    """Decode with the garbage collector paused if the text is large.

    None of the new objects is garbage; the collector would look at them again and again, and take
    longer than decoding does.
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


def loads_lax(text: str) -> JsonValue:
    """Read a text that is JSON or nearly so, to find out what is wrong with it.

    NaN, numbers out of bounds and lone surrogates pass: `find_fault` tells where they are.

    Raises:
        ValueError: it is nothing like JSON.
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
    # Reading a million digits takes quadratic time, and the number will be refused anyway.
    return int(digits) if len(digits) <= len(str(MIN_INT)) else MAX_INT + 1


# -- narrowing


def is_object(value: object) -> TypeGuard[JsonObject]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[JsonValue]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def object_in(value: JsonValue) -> JsonObject:
    """Return an object, or an empty one in place of any other value."""
    return value if is_object(value) else {}


def list_in(value: JsonValue) -> list[JsonValue]:
    """Return an array, or an empty one in place of any other value."""
    return value if is_list(value) else []


def text_in(value: JsonValue) -> str | None:
    """Return a string that is not empty, or None in place of any other value."""
    return value if isinstance(value, str) and value else None


# -- writing


def dumps(value: JsonLike, *, max_depth: int = MAX_DEPTH) -> bytes:
    """Write one value as JSON.

    A `Decimal` becomes a number with its digits, a member of a `StrEnum` its string, a tuple an
    array.

    Raises:
        ValueError: names what in the value is not JSON, and where.
    """
    fault = find_in_value(value, max_depth)
    if fault is not None:
        raise ValueError(describe(fault, "$"))
    try:
        return _encode(value)
    except UnicodeEncodeError:
        raise ValueError(describe(find_surrogate(value) or ("lone surrogate", []), "$")) from None
