"""How payload classes are read and written: strictly, and with every problem named.

cattrs structures attrs classes. Its defaults coerce (`null` becomes the text "None"), so each
leaf has a hook of ours that takes exactly its JSON type. A rule beyond the type is an annotation
on the field: `Annotated[str, Rule("a non-empty string", bool)]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from types import UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

import attrs
from cattrs import (
    AttributeValidationNote,
    BaseValidationError,
    Converter,
    IterableValidationNote,
)
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


NonEmpty = Annotated[str, Rule("a non-empty string", bool)]


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


def to_json(value: object) -> Json:
    """Unstructure a payload object; a field that is None becomes absent, not null."""
    if attrs.has(type(value)):
        return {
            field.name: to_json(item)
            for field in attrs.fields(type(value))
            if (item := getattr(value, field.name)) is not None
            or field.metadata.get(KEEP_NULL, _never)(value)
        }
    if isinstance(value, (list, tuple)):
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


_JSON_NAMES = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    type(None): "null",
    list: "an array",
    dict: "an object",
}


def _mismatch(expected: str, value: Json) -> _WrongError:
    got = _JSON_NAMES.get(type(value), "something else")
    return _WrongError([("", f"expected {expected}, got {got}")])


# --- hooks -----------------------------------------------------------------------------------


def _exactly(kind: type, *also: type) -> Callable[[Json, Any], Any]:
    """Make a hook that takes values of one JSON type as they are."""
    accepted = frozenset({kind, *also})
    expected = _JSON_NAMES[kind]

    def hook(value: Json, _: object) -> Any:
        if type(value) in accepted:
            return value
        raise _mismatch(expected, value)

    return hook


def _string_list(value: Json, _: object) -> list[str]:
    # Not cattrs' own: it makes an exception with a traceback for every wrong item.
    if type(value) is not list:
        raise _mismatch("an array", value)
    wrong = list(islice(_wrong_items(value, "a string", lambda _: True), _MAX_PROBLEMS + 1))
    if wrong:
        raise _WrongError(wrong)
    return value


def _string_lists(value: Json, _: object) -> dict[str, list[str]]:
    """Take a lease (§9.2): an object of non-empty names to arrays of non-empty strings."""
    if type(value) is not dict:
        raise _mismatch("an object", value)
    wrong = list(islice(_wrong_grants(value), _MAX_PROBLEMS + 1))
    if wrong:
        raise _WrongError(wrong)
    return value


def _wrong_grants(grants: JsonObject) -> Iterator[_Problem]:
    for name, patterns in grants.items():
        path = _key(name)
        if not name:
            yield path, "expected a non-empty name"
        if type(patterns) is not list:
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


def _with_rule(annotated: Any, converter: Converter) -> Callable[[Json, Any], Any]:
    base, *extras = get_args(annotated)
    rules = [extra for extra in extras if isinstance(extra, Rule)]
    hook = converter.get_structure_hook(base)

    def checked(value: Json, _: object) -> Any:
        result = hook(value, base)
        for rule in rules:
            if not rule.holds(result):
                raise _WrongError([("", f"expected {rule.expected}")])
        return result

    return checked


def _object(cls: type[Any], converter: Converter) -> Callable[[Json, Any], Any]:
    """Make the hook of a payload class: takes an object, null in it for absent."""
    structure = make_dict_structure_fn(cls, converter)
    optional = frozenset(f.name for f in attrs.fields(cls) if f.default is not attrs.NOTHING)

    def hook(value: Json, _: object) -> Any:
        if type(value) is not dict:
            raise _mismatch("an object", value)
        if None in value.values():
            value = {k: v for k, v in value.items() if v is not None or k not in optional}
        return structure(value, cls)

    return hook


def _or_string(union: Any, converter: Converter) -> Callable[[Json, Any], Any]:
    """Make the hook of a class whose place a bare string may take."""
    (cls,) = (kind for kind in get_args(union) if kind is not str)
    hook = converter.get_structure_hook(cls)
    return lambda value, _: value if type(value) is str else hook(value, cls)


def _is_class_or_string(kind: object) -> bool:
    kinds = get_args(kind)
    return (
        isinstance(kind, UnionType)
        and len(kinds) == 2
        and str in kinds
        and any(map(attrs.has, kinds))
    )


def _has_rule(kind: object) -> bool:
    return get_origin(kind) is Annotated and any(
        isinstance(extra, Rule) for extra in get_args(kind)
    )


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=True)
    for kind, also in ((str, ()), (bool, ()), (int, ()), (float, (int,))):
        converter.register_structure_hook(kind, _exactly(kind, *also))
    converter.register_structure_hook_func(lambda kind: kind == JsonObject, _exactly(dict))
    converter.register_structure_hook_func(lambda kind: kind == list[str], _string_list)
    converter.register_structure_hook_func(lambda kind: kind == dict[str, list[str]], _string_lists)
    converter.register_structure_hook_factory(attrs.has, _object)
    converter.register_structure_hook_factory(_has_rule, _with_rule)
    converter.register_structure_hook_factory(_is_class_or_string, _or_string)
    return converter


_converter = _make_converter()
