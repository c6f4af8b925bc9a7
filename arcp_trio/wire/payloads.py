"""Objects made of payloads, and payloads made of objects."""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, override

from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.json import JsonObject, JsonValue
from arcp_trio.wire.rules import KEEP_NULL, WIRE_NAME
from arcp_trio.wire.schema import Schema, described, schema_of

T = TypeVar("T")

_Hook: TypeAlias = Callable[[Any, Any], Any]


def read(cls: type[T], payload: JsonObject, *, root: str = "$.payload") -> T:
    """Make an object of a payload; one `InvalidRequest` names all that is wrong with it."""
    schema, make = _readers.get(cls) or _reader_of(cls)
    checked = schema.checked(payload)
    if checked is None:
        raise InvalidRequest("; ".join(described(schema.problems(payload), root)))
    made: T = make(checked, cls)
    return made


def _reader_of(cls: type[Any]) -> tuple[Schema, _Hook]:
    reader = _readers[cls] = schema_of(cls), _maker_of(cls, _converter)
    return reader


_readers: Final[dict[type[Any], tuple[Schema, _Hook]]] = {}


def to_json(message: attrs.AttrsInstance) -> JsonObject:
    """Make JSON of an object; a field that is None becomes absent, unless its class keeps nulls."""
    return {
        field.metadata.get(WIRE_NAME, field.name): _value_of(item)
        for field in attrs.fields(message.__class__)
        if (item := getattr(message, field.name)) is not None
        or field.metadata.get(KEEP_NULL, _never)(message)
    }


def _value_of(item: Any) -> JsonValue:  # noqa: ANN401 - a field may have any class
    cls = item.__class__
    if attrs.has(cls):
        return to_json(item)
    if cls is list or cls is tuple:
        return [_value_of(each) for each in item]
    value: JsonValue = item
    return value


def _never(_: object) -> bool:
    return False


# --- how cattrs makes objects of what has been checked ---------------------------------------


def _as_it_is(value: object, _: object) -> object:
    return value


def _has_no_object(hint: Any) -> bool:  # noqa: ANN401 - a class, or one of typing's special forms
    args = get_args(hint)
    parts = args[:1] if get_origin(hint) is Annotated else args  # a rule does not change the value
    return not attrs.has(hint) and all(map(_has_no_object, parts))


def _maker_of(cls: type[Any], converter: Converter) -> _Hook:
    renamed = {
        field.name: override(rename=field.metadata[WIRE_NAME])
        for field in attrs.fields(cls)
        if WIRE_NAME in field.metadata
    }
    return make_dict_structure_fn(cls, converter, **renamed)  # type: ignore[arg-type]


def _object_of(cls: type[Any], converter: Converter) -> _Hook:
    """Make the hook of a class that stands inside another."""
    make = _maker_of(cls, converter)
    without_nulls = schema_of(cls).without_nulls
    return lambda fields, _: make(without_nulls(fields), cls)


def _is_object_or_string(hint: object) -> bool:
    return isinstance(hint, UnionType) and str in get_args(hint) and not _has_no_object(hint)


def _object_or_string(hint: object, converter: Converter) -> _Hook:
    """Make the hook of a class whose place a bare string may take."""
    (cls,) = (each for each in get_args(hint) if each is not str)
    hook = converter.get_structure_hook(cls)
    return lambda value, _: value if isinstance(value, str) else hook(value, cls)


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False)
    converter.register_structure_hook_func(_has_no_object, _as_it_is)
    converter.register_structure_hook_factory(attrs.has, _object_of)
    converter.register_structure_hook_factory(_is_object_or_string, _object_or_string)
    return converter


_converter: Final = _make_converter()
