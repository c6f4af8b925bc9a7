"""What the answer to a question, or an agent's input, must be: a part of JSON Schema.

A schema is made into checks once. A check stops at the first problem and looks at each part of a
value once, so that a value takes time by its size, whatever the schema is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import gt, lt
from typing import Any, Final, TypeAlias, TypeGuard, cast

from arcp_trio.wire.errors import clip
from arcp_trio.wire.json import JsonObject, JsonValue, is_list, is_object, list_in

_Check: TypeAlias = Callable[[JsonValue, str], str | None]
"""Takes a value and its path; returns what is wrong with it, or None."""

_Reader: TypeAlias = Callable[[JsonObject, str], _Check]
"""Takes a schema that has a keyword, and its place; returns the keyword's check."""

_DESCRIBES: Final = frozenset(
    {
        "$schema",
        "$comment",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
    }
)
"""Keywords that only describe."""


class JsonSchema:
    """What a value must be. `problem` says what is wrong with one."""

    def __init__(self, schema: JsonObject) -> None:
        """Read a schema, which is JSON.

        Raises:
            ValueError: it has a keyword that is not supported, or a keyword has a wrong value.
        """
        self._check = _check_of(schema, "schema")

    def problem(self, value: JsonValue, path: str) -> str | None:
        """Return the first problem of the value, which stands at `path`; None if it is valid."""
        return self._check(value, path)


# -- reading a schema


def _check_of(schema: JsonValue, place: str) -> _Check:
    if schema is True:
        return _any_value
    if schema is False:
        return _no_value
    fields = _object(schema, place)
    unknown = fields.keys() - _KEYWORDS.keys() - _DESCRIBES
    if unknown:
        known = ", ".join(_KEYWORDS)
        raise ValueError(f"{place}: {clip(repr(min(unknown)))} is not one of {known}")
    checks = [read(fields, place) for keyword, read in _KEYWORDS.items() if keyword in fields]

    def check(value: JsonValue, path: str) -> str | None:
        for each in checks:
            problem = each(value, path)
            if problem is not None:
                return problem
        return None

    return check


def _any_value(_value: JsonValue, _path: str) -> str | None:
    return None


def _no_value(_value: JsonValue, path: str) -> str | None:
    return f"expected nothing @ {path}"


def _object(value: JsonValue, place: str) -> JsonObject:
    if not is_object(value):
        raise ValueError(f"{place} must be an object")
    return value


def _list(value: JsonValue, place: str, of: str) -> list[JsonValue]:
    if not is_list(value) or not value:
        raise ValueError(f"{place} must be a list of {of}")
    return value


# -- what holds for any value


def _is_number(value: JsonValue) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


_IS_OF: Final[Mapping[str, Callable[[JsonValue], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "number": _is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
"""The types, each with whether a value is of it. 1.0 is an integer, as it is in JSON Schema."""


def _type(schema: JsonObject, place: str) -> _Check:
    given = schema["type"]
    one = [given] if isinstance(given, str) else None
    names = one or _list(given, f"{place}.type", "names")
    for name in names:
        if not isinstance(name, str) or name not in _IS_OF:
            raise ValueError(f"{place}.type: {clip(repr(name))} is not one of {', '.join(_IS_OF)}")
    tests = [_IS_OF[str(name)] for name in names]
    wanted = " or ".join(map(str, names))

    def check(value: JsonValue, path: str) -> str | None:
        return None if any(test(value) for test in tests) else f"expected {wanted} @ {path}"

    return check


def _enum(schema: JsonObject, place: str) -> _Check:
    return _one_of(_list(schema["enum"], f"{place}.enum", "values"))


def _const(schema: JsonObject, _place: str) -> _Check:
    return _one_of([schema["const"]])


def _one_of(values: Sequence[JsonValue]) -> _Check:
    allowed = {_key(value) for value in values}
    wanted = clip(", ".join(map(repr, values[:16])))

    def check(value: JsonValue, path: str) -> str | None:
        return None if _key(value) in allowed else f"expected one of {wanted} @ {path}"

    return check


def _key(value: JsonValue) -> Hashable:
    """Return what is equal for equal JSON values: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(value, bool):
        return ("boolean", value)
    if is_list(value):
        return ("array", *map(_key, value))
    if is_object(value):
        return ("object", frozenset((name, _key(item)) for name, item in value.items()))
    return cast("Hashable", value)


# -- bounds


def _bound(keyword: str, kind: str, beyond: Callable[[float, float], bool], words: str) -> _Reader:
    """Return what reads the bound of a number, or of the length of a text or an array.

    Args:
        keyword: the bound's.
        kind: the type whose values are bounded; others are not.
        beyond: whether a number or a length is beyond a bound.
        words: what is expected, with `{}` for the bound.
    """
    counted = kind != "number"

    def read(schema: JsonObject, place: str) -> _Check:
        bound = _number(schema, keyword, place)
        if counted and (bound < 0 or bound != bound // 1):
            raise ValueError(f"{place}.{keyword} must be a whole number, 0 or more")
        expected = f"expected {words.format(bound)} @ "

        def check(value: JsonValue, path: str) -> str | None:
            if not _IS_OF[kind](value):
                return None
            size: Any = len(value) if isinstance(value, str | list) else value
            return expected + path if beyond(size, bound) else None

        return check

    return read


def _number(schema: JsonObject, keyword: str, place: str) -> float:
    value = schema[keyword]
    if not _is_number(value):
        raise ValueError(f"{place}.{keyword} must be a number")
    return value


# -- objects and arrays


def _properties(schema: JsonObject, place: str) -> _Check:
    given = _object(schema["properties"], f"{place}.properties")
    checks = {name: _check_of(each, f"{place}.{clip(name)}") for name, each in given.items()}

    def check(value: JsonValue, path: str) -> str | None:
        if not is_object(value):
            return None
        for name, item in value.items():
            if name in checks and (problem := checks[name](item, f"{path}.{clip(name)}")):
                return problem
        return None

    return check


def _additional(schema: JsonObject, place: str) -> _Check:
    named = _object(schema.get("properties", {}), f"{place}.properties")
    given = schema["additionalProperties"]
    check_item = _check_of(given, f"{place}.additionalProperties")

    def check(value: JsonValue, path: str) -> str | None:
        if not is_object(value):
            return None
        for name, item in value.items():
            if name not in named and (problem := check_item(item, f"{path}.{clip(name)}")):
                return problem
        return None

    return check


def _required(schema: JsonObject, place: str) -> _Check:
    given = schema["required"]
    required = [name for name in list_in(given) if isinstance(name, str)]
    if required != given:
        raise ValueError(f"{place}.required must be a list of names")

    def check(value: JsonValue, path: str) -> str | None:
        if not isinstance(value, dict):
            return None
        for name in required:
            if name not in value:
                return f"missing @ {path}.{clip(name)}"
        return None

    return check


def _items(schema: JsonObject, place: str) -> _Check:
    check_item = _check_of(schema["items"], f"{place}.items")

    def check(value: JsonValue, path: str) -> str | None:
        if not is_list(value):
            return None
        for index, item in enumerate(value):
            if problem := check_item(item, f"{path}[{index}]"):
                return problem
        return None

    return check


_KEYWORDS: Final[Mapping[str, _Reader]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "properties": _properties,
    "required": _required,
    "additionalProperties": _additional,
    "minItems": _bound("minItems", "array", lt, "at least {} items"),
    "maxItems": _bound("maxItems", "array", gt, "at most {} items"),
    "items": _items,
    "minimum": _bound("minimum", "number", lt, "at least {}"),
    "maximum": _bound("maximum", "number", gt, "at most {}"),
    "minLength": _bound("minLength", "string", lt, "at least {} characters"),
    "maxLength": _bound("maxLength", "string", gt, "at most {} characters"),
}
"""The keywords that constrain a value, each with what reads it, in the order of the checks."""
