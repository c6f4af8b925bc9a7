"""The JSON Schema of an agent's input, as it is given, or made from a class of attrs."""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

import attrs

from arcp_trio.wire.json import JsonLike, JsonObject, JsonValue, dumps, list_in, loads_object
from arcp_trio.wire.json_schema import JsonSchema

MOST_BYTES: Final = 16 * 1024
"""The largest schema: each welcome repeats it."""

_DESCRIPTION: Final = "description"
"""The key of the schema, and of a field's metadata, that says what a value means."""

_SIMPLE: Final[Mapping[object, str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    types.NoneType: "null",
}
_ARRAYS: Final = (list, tuple, set, frozenset, Sequence, AbstractSet)
_OBJECTS: Final = (dict, Mapping)


def input_schema(given: Mapping[str, JsonLike] | type[Any]) -> JsonObject:
    """Return the schema that is given, or that of an attrs class, as JSON of its own.

    Raises:
        ValueError: it is too large, is not JSON, or has a keyword that is not checked here.
        TypeError: it is neither a schema nor an attrs class, or the class has a field of a type
            for which there is no schema.
    """
    if isinstance(given, type):
        if not attrs.has(given):
            raise TypeError(f"{given.__name__} is not an attrs class, nor a JSON Schema")
        given = _of_class(given, ())
    elif not isinstance(cast("object", given), Mapping):
        raise TypeError("it is neither a JSON Schema, which is a dict, nor an attrs class")
    encoded = dumps(dict(given))
    if len(encoded) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    schema = loads_object(encoded)
    JsonSchema(schema)  # says what is wrong with it
    return schema


# -- from a class


def _of_class(cls: type[Any], inside: tuple[type[Any], ...]) -> JsonObject:
    if cls in inside:
        raise TypeError(f"{cls.__name__} contains itself; give a JSON Schema instead")
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise TypeError(f"{cls.__name__}: {error}; define it at the top of its module") from None
    fields = [field for field in attrs.fields(cls) if field.init]
    properties: JsonObject = {}
    for field in fields:
        found = _of_type(hints[field.name], f"{cls.__name__}.{field.name}", (*inside, cls))
        if _DESCRIPTION in field.metadata:
            found[_DESCRIPTION] = str(field.metadata[_DESCRIPTION])
        if isinstance(field.default, str | int | float | bool):
            found["default"] = field.default
        properties[field.alias] = found
    schema: JsonObject = {"type": "object", "properties": properties}
    if cls.__doc__:
        schema[_DESCRIPTION] = inspect.cleandoc(cls.__doc__)
    required = [field.alias for field in fields if field.default is attrs.NOTHING]
    return schema | {"required": cast("JsonValue", required), "additionalProperties": False}


def _of_type(hint: Any, where: str, inside: tuple[type[Any], ...]) -> JsonObject:  # noqa: ANN401
    """Return the schema of a type; `inside` has the classes that are being read."""
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if hint in (Any, object):
        return {}
    origin, args = get_origin(hint) or hint, get_args(hint)
    if origin is Annotated:
        return _of_type(args[0], where, inside)
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return _of_union(args, where, inside)
    if origin in _ARRAYS:
        return {"type": "array"} | _items(origin, args, where, inside)
    if origin in _OBJECTS:
        item: JsonObject = _of_type(args[1], where, inside) if args else {}
        return {"type": "object", "additionalProperties": item} if item else {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if isinstance(hint, type) and attrs.has(hint):
        return _of_class(hint, inside)
    raise TypeError(f"{where}: there is no schema for {hint!r}; give a JSON Schema instead")


def _items(
    origin: object, args: Sequence[Any], where: str, inside: tuple[type[Any], ...]
) -> JsonObject:
    if not args:
        return {}
    if origin is tuple and args[1:] != (Ellipsis,):
        raise TypeError(f"{where}: of tuples, only tuple[X, ...] has a schema")
    item = _of_type(args[0], where, inside)
    return {"items": item} if item else {}


def _of_union(args: Sequence[Any], where: str, inside: tuple[type[Any], ...]) -> JsonObject:
    """Return the schema of simple types, or of one type and None."""
    others = [arg for arg in args if arg is not types.NoneType]
    if all(arg in _SIMPLE for arg in args):
        return {"type": [_SIMPLE[arg] for arg in args]}
    if len(others) != 1:
        raise TypeError(
            f"{where}: of unions, only simple types, and one type or None, have schemas"
        )
    found = _of_type(others[0], where, inside)
    if "enum" in found:
        found["enum"] = [*list_in(found["enum"]), None]
    elif "type" in found:
        found["type"] = [found["type"], "null"]
    return found
