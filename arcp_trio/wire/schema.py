"""Strict checks of JSON objects against classes, which name everything that is wrong.

The schema of a class of attrs or msgspec is in the annotations of its fields; a field with a
default is optional, and null in it is as good as absent. A rule beyond the type is part of the
annotation: `Annotated[str, Meta(max_length=9)]`, `Annotated[str, Rule("a time", is_time)]`.

Envelopes, messages and event bodies are all checked here. Two libraries do what these checks
cannot. msgspec makes values of a text, and refuses a wrong envelope faster than Python code can;
but it names the first problem only (`envelope.py`). cattrs makes objects of payloads; but it
coerces (`null` becomes the text "None"), so it gets only checked payloads (`payloads.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
import msgspec
from msgspec import Meta

from arcp_trio.wire.errors import clip
from arcp_trio.wire.faults import plain
from arcp_trio.wire.json import JsonLike
from arcp_trio.wire.rules import KEEP_NULL, WIRE_NAME, Rule

T = TypeVar("T")

Problem: TypeAlias = tuple[str, str]
"""A path that begins at the checked value, and what is wrong there."""

MAX_PROBLEMS: Final = 8
"""Problems named in one message, at most: a list of a million wrong items has to end somewhere."""
_MAX_PATH: Final = 256  # characters
_MAX_KEY: Final = 64  # characters


class Schema:
    """What the fields of an object must be; fields that the class lacks are ignored."""

    def __init__(self, cls: type[Any]) -> None:
        fields = list(_fields_of(cls))
        narrow = [field for field in fields if field.kind is not _ANYTHING]
        self._fields = [(field.name, field.kind, field.required) for field in narrow]
        # Unpacked, because `checked` runs for every event: attributes would double its time.
        self._quick = [(f.name, f.kind.classes, f.kind.fits, f.kind, f.required) for f in narrow]
        self._nullable = frozenset(field.name for field in fields if field.nullable)
        self._wide = [f.name for f in fields if f.kind is _ANYTHING and f.nullable]
        self._needed = [f.name for f in fields if f.kind is _ANYTHING and f.required]

    def checked(self, value: dict[str, T]) -> dict[str, T] | None:
        """Return the object without nulls in optional fields; None if anything is wrong with it."""
        has_nulls = False
        for name, classes, fits, kind, required in self._quick:
            item = value.get(name)
            if item.__class__ in classes:
                if fits is None or fits(item):
                    continue
                return None
            if item is None:
                if required:
                    return None
                has_nulls = has_nulls or name in value
            elif not kind.takes(item):
                return None
        for name in self._needed:
            if name not in value:
                return None
        for name in self._wide:
            has_nulls = has_nulls or value.get(name, ...) is None
        return self.without_nulls(value) if has_nulls else value

    def without_nulls(self, value: dict[str, T]) -> dict[str, T]:
        """Return the object without nulls in optional fields."""
        nullable = self._nullable
        return {k: item for k, item in value.items() if item is not None or k not in nullable}

    def fits(self, value: dict[str, JsonLike]) -> bool:
        """Return whether nothing is wrong with an object."""
        return self.checked(value) is not None

    def problems(self, value: Mapping[str, JsonLike]) -> Iterator[Problem]:
        """Yield what is wrong with an object, in the order of the fields."""
        for name, kind, required in self._fields:
            item = value.get(name)
            if item is not None:
                for path, text in kind.problems(item):
                    yield f".{name}{path}", text
            elif required:
                yield f".{name}", kind.mismatch(None) if name in value else "missing"
        for name in self._needed:
            if name not in value:
                yield f".{name}", "missing"


def schema_of(cls: type[Any]) -> Schema:
    """Return the schema of a class; it is made once."""
    schema = _schemas.get(cls)
    if schema is None:
        schema = _schemas[cls] = Schema(cls)
    return schema


_schemas: Final[dict[type[Any], Schema]] = {}


def described(problems: Iterable[Problem], root: str) -> Iterator[str]:
    """Yield a description of each problem of the value at `root`, up to `MAX_PROBLEMS`."""
    for count, (path, text) in enumerate(problems):
        if count == MAX_PROBLEMS:
            yield "and more"
            return
        yield f"{text} @ {root}{clip(path, _MAX_PATH)}"


# --- what one value must be ------------------------------------------------------------------


@attrs.frozen
class _Kind:
    """What a value must be, as an annotation says."""

    name: str
    classes: frozenset[type]
    """The value is of exactly one of these classes."""
    fits: Callable[[Any], object] | None = None
    """Tells by its truth whether a value of these classes is right. None: it is."""
    look: Callable[[Any], Iterator[Problem]] | None = None
    """Yields what is wrong with a value of these classes that does not fit."""

    def takes(self, value: object) -> bool:
        """Return whether nothing is wrong with a value."""
        if value.__class__ in self.classes:
            return self.fits is None or bool(self.fits(value))
        known = plain(value)
        return known is not value and self.takes(known)

    def problems(self, value: object) -> Iterator[Problem]:
        """Yield what is wrong with a value."""
        if value.__class__ not in self.classes and plain(value).__class__ not in self.classes:
            yield "", self.mismatch(value)
        elif self.fits is not None and self.look is not None and not self.fits(value):
            yield from self.look(value)

    def mismatch(self, value: object) -> str:
        """Describe a value of another class."""
        got = _NAMES.get(plain(value).__class__, "something else")
        return f"expected {self.name}, got {got}"


_NAMES: Final[Mapping[type, str]] = {
    NoneType: "null",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    Decimal: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}

_ANYTHING: Final = _Kind("a value", frozenset())
_STRING: Final = _Kind("a string", frozenset({str}))
_OBJECT: Final = _Kind("an object", frozenset({dict}))
_NUMBER: Final = _Kind("a number", frozenset({int, float, Decimal}))
_SIMPLE: Final[Mapping[object, _Kind]] = {
    Any: _ANYTHING,
    str: _STRING,
    bool: _Kind("a boolean", frozenset({bool})),
    int: _Kind("an integer", frozenset({int})),
    float: _Kind("a number", frozenset({int, float})),
}


def _kind_of(hint: Any) -> _Kind:  # noqa: ANN401 - a class, or one of typing's special forms
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _ruled(_kind_of(args[0]), _rule_of(args[1]))
    if origin is Literal:
        return _ruled(_STRING, Rule(f"one of {', '.join(args)}", args.__contains__))
    if origin in (Union, UnionType):
        return _union([each for each in args if each is not NoneType])
    if origin is list:
        return _list_of(_kind_of(args[0]))
    if origin is dict:
        return _dict_of(*map(_kind_of, args))
    schema = schema_of(hint)
    return attrs.evolve(_OBJECT, fits=schema.fits, look=schema.problems)


def _ruled(kind: _Kind, rule: Rule) -> _Kind:
    def look(_: object) -> Iterator[Problem]:
        yield "", f"expected {rule.expected}"

    return attrs.evolve(kind, fits=rule.holds, look=look)


def _rule_of(extra: object) -> Rule:
    if isinstance(extra, Rule):
        return extra
    assert isinstance(extra, Meta)
    least, most = extra.min_length or 0, extra.max_length
    assert most is not None, "no other constraint is in use"
    return Rule(f"{least} to {most} characters", lambda text: least <= len(text) <= most)


def _union(hints: Sequence[Any]) -> _Kind:
    if Decimal in hints:
        return _NUMBER
    kinds = [_kind_of(hint) for hint in hints]
    if len(kinds) == 1:
        return kinds[0]
    by_class = {cls: kind for kind in kinds for cls in kind.classes}
    return _Kind(
        " or ".join(kind.name for kind in kinds),
        frozenset(by_class),
        fits=lambda value: by_class[value.__class__].takes(value),
        look=lambda value: by_class[value.__class__].problems(value),
    )


def _list_of(item: _Kind) -> _Kind:
    def look(values: list[object]) -> Iterator[Problem]:
        for index, value in enumerate(values):
            for path, text in item.problems(value):
                yield f"[{index}]{path}", text

    return _Kind("an array", frozenset({list}), lambda values: all(map(item.takes, values)), look)


def _dict_of(key: _Kind, item: _Kind) -> _Kind:
    if item is _ANYTHING:
        return _OBJECT

    def look(values: dict[object, object]) -> Iterator[Problem]:
        for name, value in values.items():
            for path, text in chain(key.problems(name), item.problems(value)):
                yield f"[{clip(repr(name), _MAX_KEY)}]{path}", text

    def fits(values: dict[object, object]) -> bool:
        return all(map(key.takes, values)) and all(map(item.takes, values.values()))

    return attrs.evolve(_OBJECT, fits=fits, look=look)


# --- what the fields of a class are ----------------------------------------------------------


@attrs.frozen
class _Field:
    name: str
    kind: _Kind
    required: bool
    nullable: bool
    """Null is as good as absent."""


def _fields_of(cls: type[Any]) -> Iterator[_Field]:
    if attrs.has(cls):
        hints = get_type_hints(cls, include_extras=True)
        for field in attrs.fields(cls):
            required = field.default is attrs.NOTHING
            nullable = not required and KEEP_NULL not in field.metadata
            name = field.metadata.get(WIRE_NAME, field.name)
            yield _Field(name, _kind_of(hints[field.name]), required, nullable)
    else:
        for info in msgspec.structs.fields(cls):
            yield _Field(info.encode_name, _kind_of(info.type), info.required, not info.required)
