"""How payload classes are read and written: strictly, and with every problem named.

cattrs structures attrs classes. Its defaults coerce (`null` becomes the text "None"), so each
leaf has a hook of ours that takes exactly its JSON type. A rule beyond the type is an annotation
on the field: `Annotated[str, Rule("a non-empty string", bool)]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

import attrs
from cattrs import (
    AttributeValidationNote,
    BaseValidationError,
    Converter,
    IterableValidationNote,
)
from cattrs.cols import list_structure_factory
from cattrs.gen import make_dict_structure_fn

from arcp_trio.wire.errors import InvalidRequest, clip
from arcp_trio.wire.json import Json, JsonObject

T = TypeVar("T")

_MAX_PROBLEMS = 8  # named in one error; a list of a million wrong items has to end somewhere

KEEP_NULL = "keep_null"
"""Metadata of the few fields that peers want as null rather than not at all: when to send it."""


@attrs.frozen
class Rule:
    """What a value of the right JSON type must also be."""

    expected: str
    holds: Callable[[Any], bool]


def _length(least: int, most: int) -> Rule:
    return Rule(f"{least} to {most} characters", lambda text: least <= len(text) <= most)


NonEmpty = Annotated[str, Rule("a non-empty string", bool)]
# What is stored or repeated in answers has an end.
Identifier = Annotated[str, _length(1, 256)]
Remark = Annotated[str, _length(0, 4096)]


def always(_: object) -> bool:
    """Say yes: the commonest value of `KEEP_NULL`."""
    return True


_Problem: TypeAlias = tuple[str, str]  # path, what is wrong there


class _WrongError(ValueError):
    """A value that its hook refused; the paths of its problems begin at the value."""

    def __init__(self, problems: list[_Problem]) -> None:
        super().__init__(problems)
        self.problems = problems


def read(cls: type[T], value: Json, *, root: str = "$.payload") -> T:
    """Structure a JSON value; one `InvalidRequest` names all that is wrong with it."""
    try:
        return _converter.structure(value, cls)
    except (BaseValidationError, _WrongError) as error:
        problems: list[str] = []
        for path, text in _problems(error, root):
            if len(problems) == _MAX_PROBLEMS:
                problems.append("and more")
                break
            problems.append(f"{text} @ {clip(path, 256)}")
        raise InvalidRequest("; ".join(problems)) from None


def to_json(value: Json) -> Json:
    """Unstructure a payload object; a field that is None becomes absent, not null."""
    cls = value.__class__
    if attrs.has(cls):
        return {
            field.name: to_json(item)
            for field in attrs.fields(cls)
            if (item := getattr(value, field.name)) is not None
            or field.metadata.get(KEEP_NULL, _never)(value)
        }
    if cls is list or cls is tuple:
        return [to_json(item) for item in value]
    return value


def _never(_: object) -> bool:
    return False


# --- problems --------------------------------------------------------------------------------


def _problems(error: BaseException, path: str) -> Iterator[_Problem]:
    if isinstance(error, BaseValidationError):
        for part in error.exceptions:
            yield from _problems(part, path + _step(part))
    elif isinstance(error, _WrongError):
        for below, text in error.problems:
            yield path + below, text
    elif isinstance(error, KeyError):
        yield f"{path}.{error.args[0]}", "missing"
    else:
        raise error


def _step(part: BaseException) -> str:
    for note in getattr(part, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            # A missing field is named by its KeyError already.
            return "" if isinstance(part, KeyError) else f".{note.name}"
        if isinstance(note, IterableValidationNote):
            return _key(note.index)
    return ""


def _key(index: object) -> str:
    return f"[{clip(repr(index), 64)}]"


_JSON_NAMES: dict[type[object], str] = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    type(None): "null",
    list: "an array",
    dict: "an object",
}


def _mismatch(expected: str, value: Json) -> _WrongError:
    kind = value.__class__
    got = _JSON_NAMES.get(kind, "something else")
    return _WrongError([("", f"expected {expected}, got {got}")])


# --- hooks -----------------------------------------------------------------------------------


_Hook: TypeAlias = Callable[[Json, Any], Json]


def _exactly(kind: type, *also: type) -> _Hook:
    """Make a hook that takes values of one JSON type as they are."""
    accepted = frozenset({kind, *also})
    expected = _JSON_NAMES[kind]

    def hook(value: Json, _: object) -> Json:
        if type(value) in accepted:
            return value
        raise _mismatch(expected, value)

    return hook


def _take_strings(value: Json, _: object) -> list[str]:
    # Not cattrs' own: it makes an exception with a traceback for every wrong item.
    items: list[str] = _take_array(value, None)
    _refuse_any(_wrong_items(items, "a string", lambda _: True))
    return items


def _take_lease(value: Json, _: object) -> dict[str, list[str]]:
    """Take an object of non-empty names to arrays of non-empty strings (§9.2)."""
    grants: dict[str, list[str]] = _take_object(value, None)
    _refuse_any(_wrong_grants(grants))
    return grants


_take_array = _exactly(list)
_take_object = _exactly(dict)


def _refuse_any(problems: Iterator[_Problem]) -> None:
    first = list(islice(problems, _MAX_PROBLEMS + 1))
    if first:
        raise _WrongError(first)


def _wrong_grants(grants: dict[str, Json]) -> Iterator[_Problem]:
    for name, patterns in grants.items():
        path = _key(name)
        if not name:
            yield path, "expected a non-empty name"
        kind = patterns.__class__
        if kind is not list:
            yield path, "expected an array"
            continue
        for below, text in _wrong_items(patterns, "a non-empty string", bool):
            yield path + below, text


def _wrong_items(
    items: list[Json], expected: str, holds: Callable[[str], bool]
) -> Iterator[_Problem]:
    for index, item in enumerate(items):
        if type(item) is not str or not holds(item):
            yield f"[{index}]", f"expected {expected}"


def _with_rule(kind: type[Any], converter: Converter) -> _Hook:
    """Make the hook of an `Annotated` type: its own, then the rules."""
    base, *extras = get_args(kind)
    rules = [extra for extra in extras if isinstance(extra, Rule)]
    hook = converter.get_structure_hook(base)

    def checked(value: Json, _: object) -> Json:
        result = hook(value, base)
        for rule in rules:
            if not rule.holds(result):
                raise _WrongError([("", f"expected {rule.expected}")])
        return result

    return checked


def _object_of(cls: type[Any], converter: Converter) -> _Hook:
    """Make the hook of a payload class: takes an object, null in it for absent."""
    structure = make_dict_structure_fn(cls, converter)
    optional = frozenset(f.name for f in attrs.fields(cls) if f.default is not attrs.NOTHING)

    def hook(value: Json, _: object) -> Json:
        fields: JsonObject = _take_object(value, None)
        if None in fields.values():
            fields = {k: v for k, v in fields.items() if v is not None or k not in optional}
        return structure(fields, cls)

    return hook


def _array_of(kind: type[Any], converter: Converter) -> _Hook:
    """Make the hook of a list: takes an array, where cattrs would take whatever can be iterated."""
    structure = list_structure_factory(kind, converter)

    def hook(value: Json, _: object) -> Json:
        return structure(_take_array(value, None), kind)

    return hook


def _or_string(kind: type[Any], converter: Converter) -> _Hook:
    """Make the hook of a class whose place a bare string may take."""
    (cls,) = (alternative for alternative in get_args(kind) if alternative is not str)
    hook = converter.get_structure_hook(cls)

    def take(value: Json, _: object) -> Json:
        return value if isinstance(value, str) else hook(value, cls)

    return take


def _is_class_or_string(kind: object) -> bool:
    alternatives = get_args(kind)
    return isinstance(kind, UnionType) and str in alternatives and NoneType not in alternatives


def _has_rule(kind: object) -> bool:
    return get_origin(kind) is Annotated and any(
        isinstance(extra, Rule) for extra in get_args(kind)
    )


def _is_list(kind: object) -> bool:
    return get_origin(kind) is list


def _is_exactly(wanted: object) -> Callable[[object], bool]:
    return lambda kind: kind == wanted


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=True)
    converter.register_structure_hook(str, _exactly(str))
    converter.register_structure_hook(bool, _exactly(bool))
    converter.register_structure_hook(int, _exactly(int))
    converter.register_structure_hook(float, _exactly(float, int))
    converter.register_structure_hook_factory(_is_list, _array_of)
    converter.register_structure_hook_func(_is_exactly(JsonObject), _take_object)
    converter.register_structure_hook_func(_is_exactly(list[str]), _take_strings)
    converter.register_structure_hook_func(_is_exactly(dict[str, list[str]]), _take_lease)
    converter.register_structure_hook_factory(attrs.has, _object_of)
    converter.register_structure_hook_factory(_has_rule, _with_rule)
    converter.register_structure_hook_factory(_is_class_or_string, _or_string)
    return converter


_converter = _make_converter()
