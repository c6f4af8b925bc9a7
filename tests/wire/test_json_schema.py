"""The part of JSON Schema in which agents say what a value must be, against a slow model."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Final, TypeGuard

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio import Json
from arcp_trio.wire.json import JsonValue
from arcp_trio.wire.json_schema import JsonSchema

SCALARS: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([-1.5, 0.0, 1.0, 2.5]),
    st.text("ab", max_size=3),
)
NAMES: Final = st.sampled_from("abc")
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=6,
)
CLASSES: Final[Mapping[str, type]] = {
    "null": type(None),
    "boolean": bool,
    "integer": int,
    "number": float,
    "string": str,
    "array": list,
    "object": dict,
}
"""The types of JSON Schema, each with a class of Python."""
TYPE_NAMES: Final = st.sampled_from(sorted(CLASSES))


def schemas_of(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """Return schemas whose parts are `inner`."""
    keywords: dict[str, st.SearchStrategy[Json]] = {
        "type": st.one_of(TYPE_NAMES, st.lists(TYPE_NAMES, min_size=1, max_size=3)),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "properties": st.dictionaries(NAMES, inner, max_size=2),
        "required": st.lists(NAMES, max_size=2),
        "additionalProperties": inner,
        "items": inner,
        "minimum": st.sampled_from([-1, 0, 1.5]),
        "maximum": st.sampled_from([-1, 0, 1.5]),
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 3),
        "minItems": st.integers(0, 3),
        "maxItems": st.integers(0, 3),
        "title": st.just("a title"),
        "examples": st.just([1]),
    }
    return st.lists(st.sampled_from(sorted(keywords)), max_size=3, unique=True).flatmap(
        lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in chosen})
    )


SCHEMAS: Final = st.recursive(st.booleans(), schemas_of, max_leaves=6)


def is_list(value: object) -> TypeGuard[list[Json]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def is_object(value: object) -> TypeGuard[dict[str, Json]]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number."""
    return type(value) in (int, float)


def is_a(value: object, name: str) -> bool:
    """Return whether a JSON value is of a type."""
    if name == "integer":
        return isinstance(value, float | int) and is_number(value) and value == int(value)
    if name == "number":
        return is_number(value)
    return type(value) is CLASSES[name]


def equal(one: Json, other: Json) -> bool:
    """Return whether two JSON values are equal."""
    if is_number(one) and is_number(other):
        return bool(one == other)
    if type(one) is not type(other):
        return False
    if is_list(one):
        return len(one) == len(other) and all(map(equal, one, other))
    if is_object(one):
        return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)
    return bool(one == other)


def valid(value: Json, schema: Json) -> bool:
    """Return whether a value is valid: the specification of JSON Schema, word by word."""
    if isinstance(schema, bool):
        return schema
    return all(holds(keyword, schema, value) for keyword in schema)


def holds(keyword: str, schema: Mapping[str, Json], value: Json) -> bool:
    """Return whether one keyword of a schema accepts a value."""
    if is_object(value) and keyword in ("required", "properties", "additionalProperties"):
        return holds_of_object(keyword, schema, value)
    if is_list(value) and keyword in ("items", "minItems", "maxItems"):
        return holds_of_array(keyword, schema[keyword], value)
    wanted = schema[keyword]
    match keyword:
        case "type":
            return any(
                is_a(value, name) for name in ([wanted] if isinstance(wanted, str) else wanted)
            )
        case "enum":
            return any(equal(value, each) for each in wanted)
        case "const":
            return equal(value, wanted)
        case "minimum" if is_number(value):
            return bool(value >= wanted)
        case "maximum" if is_number(value):
            return bool(value <= wanted)
        case "minLength" if isinstance(value, str):
            return bool(len(value) >= wanted)
        case "maxLength" if isinstance(value, str):
            return bool(len(value) <= wanted)
        case _:
            return True


def holds_of_array(keyword: str, wanted: Json, value: list[Json]) -> bool:
    """Return whether a keyword that is about arrays accepts one."""
    if keyword == "items":
        return all(valid(each, wanted) for each in value)
    return bool(len(value) >= wanted if keyword == "minItems" else len(value) <= wanted)


def holds_of_object(keyword: str, schema: Mapping[str, Json], value: Mapping[str, Json]) -> bool:
    """Return whether a keyword that is about objects accepts one."""
    wanted = schema[keyword]
    if keyword == "required":
        return all(name in value for name in wanted)
    if keyword == "properties":
        return all(valid(value[name], wanted[name]) for name in value.keys() & wanted.keys())
    others = value.keys() - schema.get("properties", {}).keys()
    return all(valid(value[name], wanted) for name in others)


@given(schemas_of(SCHEMAS), VALUES)
def test_it_decides_as_the_specification_does(schema: Json, value: Json) -> None:
    """Any schema of the supported keywords accepts exactly the values that it should."""
    problem = JsonSchema(schema).problem(value, "$")
    assert (problem is None) is valid(value, schema), problem
    assert problem is None or " @ $" in problem


@given(VALUES)
def test_a_const_is_its_own_value(value: Json) -> None:
    """A value is equal to itself, also after it was written and read."""
    again = json.loads(json.dumps(value))
    assert JsonSchema({"const": value}).problem(again, "$") is None
    assert JsonSchema({"enum": [[value]]}).problem([again], "$") is None


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"type": "integer"}, True, "expected integer @ $"),
        ({"type": ["string", "null"]}, 1, "expected string or null @ $"),
        ({"enum": [1, "a"]}, True, "expected one of 1, 'a' @ $"),
        ({"required": ["name"]}, {}, "missing @ $.name"),
        ({"additionalProperties": False}, {"x": 1}, "expected nothing @ $.x"),
        ({"properties": {"a": {"items": {"minimum": 2}}}}, {"a": [3, 1]}, "at least 2 @ $.a[1]"),
        ({"minLength": 2}, "é", "expected at least 2 characters @ $"),
        ({"items": {"minItems": 1}}, [[]], "expected at least 1 items @ $[0]"),
        ({"maxItems": 1}, [1, 2], "expected at most 1 items @ $"),
        ({"maxLength": 2}, "abc", "expected at most 2 characters @ $"),
    ],
)
def test_a_problem_says_what_and_where(schema: Json, value: Json, problem: str) -> None:
    """The first problem of an answer is told with its place."""
    told = JsonSchema(schema).problem(value, "$")
    assert told is not None
    assert problem in told


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"pattern": "a"}, "schema: 'pattern' is not one of type, enum"),
        ({"$ref": "#"}, "'$ref' is not one of"),
        ({"oneOf": []}, "'oneOf' is not one of"),
        ({"properties": {"a": {"format": "date"}}}, "schema.a: 'format' is not one of"),
        ({"items": {"not": {}}}, "schema.items: 'not' is not one of"),
        ({"additionalProperties": {"if": {}}}, "schema.additionalProperties: 'if' is not one of"),
        ({"type": "text"}, "schema.type: 'text' is not one of null"),
        ({"type": []}, "schema.type must be a list of names"),
        ({"type": 1}, "schema.type must be a list of names"),
        ({"enum": []}, "schema.enum must be a list of values"),
        ({"enum": {}}, "schema.enum must be a list of values"),
        ({"properties": []}, "schema.properties must be an object"),
        ({"properties": {"a": 1}}, "schema.a must be an object"),
        ({"required": "a"}, "schema.required must be a list of names"),
        ({"required": [1]}, "schema.required must be a list of names"),
        ({"items": []}, "schema.items must be an object"),
        ({"minimum": True}, "schema.minimum must be a number"),
        ({"maximum": "1"}, "schema.maximum must be a number"),
        ({"minLength": -1}, "schema.minLength must be a whole number"),
        ({"maxLength": 1.5}, "schema.maxLength must be a whole number"),
    ],
)
def test_a_schema_that_cannot_be_read(schema: Json, text: str) -> None:
    """A keyword that is not supported, or that has a wrong value, is named with its place."""
    with pytest.raises(ValueError, match=re.escape(text)):
        JsonSchema(schema)


def test_a_large_answer_takes_time_by_its_size() -> None:
    """The work for an answer of 20,000 items does not grow with the 10,000 in the enum."""
    schema = JsonSchema({"items": {"enum": [f"option {n}" for n in range(10_000)]}})
    answer: list[JsonValue] = [f"option {n % 10_000}" for n in range(20_000)]
    before = time.process_time()
    assert schema.problem(answer, "$") is None
    assert time.process_time() - before < 5, "looking through the whole enum takes minutes"
