"""Strict JSON in both directions."""

from __future__ import annotations

import gc
import json
import math
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.faults import LARGE, find_fault
from arcp_trio.wire.json import MAX_DEPTH, dumps, loads, loads_exact

unicode_text = st.text(st.characters(exclude_categories=["Cs"]))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | unicode_text
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(unicode_text, inner), max_leaves=20
)


def nested(levels: int) -> str:
    """Return an array in an array, `depth` levels deep."""
    return "[" * levels + "]" * levels


@given(values)
def test_any_value_comes_back(value: Any) -> None:
    """Any JSON value is read back as it was written."""
    assert loads(dumps(value)) == value
    assert loads(dumps(value).decode()) == value


@given(values)
def test_another_reader_and_writer_agree(value: Any) -> None:
    """The standard library reads what `dumps` writes, and `loads` reads what it writes."""
    assert json.loads(dumps(value)) == value
    assert loads(json.dumps(value)) == value


@pytest.mark.spec("1.0/5.2-2")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("1 2", "not valid JSON"),
        ("'a'", "not valid JSON"),
        ('"\x01"', "not valid JSON"),
        ("NaN", "number is not finite @ $"),
        ('{"a": [0, NaN]}', "number is not finite @ $.a[1]"),
        ('{"a": Infinity}', "number is not finite @ $.a"),
        ('{"a": -1e999}', "number is not finite @ $.a"),
        ("9223372036854775808", "integer beyond 64 bits @ $"),
        ('{"a b": -9223372036854775809}', "integer beyond 64 bits @ $['a b']"),
        ("1" + "0" * 400, "integer beyond 64 bits @ $"),
        ("[" + "1" * 100_000 + "]", "integer beyond 64 bits @ $[0]"),
        (r'{"a": "\ud800"}', "lone surrogate @ $.a"),
        (r'{"a": "\ud800abcdef"}', "lone surrogate @ $.a"),
        (r'{"a": "\udc00\ud800"}', "lone surrogate @ $.a"),
        (r'{"\ud800": 1}', "lone surrogate in a key @ $"),
        ('"\ud800"', "lone surrogate @ $"),
        (b'"\xff"', "not valid UTF-8 @ $"),
        (b'"\xed\xa0\x80"', "not valid UTF-8 @ $"),
    ],
)
def test_what_is_not_json_is_refused(text: str | bytes, problem: str) -> None:
    """Text that is nearly JSON raises an InvalidRequest that says what is wrong, and where."""
    with pytest.raises(InvalidRequest) as caught:
        loads(text)
    assert problem in caught.value.message
    assert len(caught.value.message) < 500


def test_numbers_at_the_edge_are_exact() -> None:
    """The largest and smallest integers of 64 bits pass, as do strings with many digits."""
    assert loads("[9223372036854775807, -9223372036854775808]") == [2**63 - 1, -(2**63)]
    assert loads('"12345678901234567890123"') == "12345678901234567890123"


def test_duplicate_keys_keep_the_last() -> None:
    """Of two equal keys the last one counts."""
    assert loads('{"a": 1, "a": 2}') == {"a": 2}


tricky_text = st.text('[]{}"\\\\,:-.e0123456789é', max_size=40)
numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?0{0,22}[0-9])?", fullmatch=True
)
texts = st.recursive(
    numbers | tricky_text.map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda parts: f"[{', '.join(parts)}]")
        | st.dictionaries(tricky_text.map(json.dumps), inner, max_size=4).map(
            lambda parts: "{" + ",".join(f"{key} : {value}" for key, value in parts.items()) + "}"
        )
    ),
    max_leaves=30,
)


@given(texts, st.integers(0, 4))
@example("1e-0000000000000000000001", 0)
@example("1e+0000000000000000000001", 0)
@example(r'["\\", "[["]', 1)
@example(r'["\"", "[["]', 1)
def test_what_the_text_shows_is_what_the_value_is(text: str, depth: int) -> None:
    """Brackets, digits and quotes in strings, fractions and exponents count towards no bound."""
    fault = find_fault(json.loads(text), depth)
    try:
        loads(text, max_depth=depth)
    except InvalidRequest as error:
        assert error.message == fault  # noqa: PT017 - either of the two is right
    else:
        assert fault is None


@pytest.mark.parametrize("fault", ["[" * 65 + "]" * 65, "1" * 20])
@pytest.mark.parametrize("before", ['"[{"', '"\\\\"', r'"\"[]"', "[]"])
def test_a_large_text_is_held_to_the_same(fault: str, before: str) -> None:
    """A large text has the same bounds, and the garbage collector is enabled afterwards."""
    good = f"[{', '.join([before] * (LARGE // 4))}, 1.{'1' * 20}]"
    read = loads(good)
    assert isinstance(read, list)
    assert len(read) == LARGE // 4 + 1
    with pytest.raises(InvalidRequest, match=r"@ \$$"):
        loads(f"[{good}, {fault}]")
    assert gc.isenabled()


def test_nesting_is_bounded() -> None:
    """Nesting at the bound is allowed; one level more, or a hundred thousand, are refused."""
    assert loads(nested(MAX_DEPTH))
    for levels in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(InvalidRequest, match="nested too deeply"):
            loads(nested(levels))
    assert loads("[" + ",".join(["{}"] * 1000) + "]") == [{}] * 1000


class Level(StrEnum):
    """Strings with names."""

    HIGH = "high"
    BROKEN = "\ud800"


class Rank(IntEnum):
    """Numbers with names."""

    FIRST = 1
    ENDLESS = 2**63


class Text(str):
    """A string whose `__str__` returns another string."""

    __slots__ = ()

    def __str__(self) -> str:
        return "shown"


class Count(int):
    """A subclass of int."""


class Share(float):
    """A subclass of float."""


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Level.HIGH, b'"high"'),
        ([Rank.FIRST], b"[1]"),
        ({"a": Text("said")}, b'{"a":"said"}'),
        ([Count(2), Share(0.5), True], b"[2,0.5,true]"),
        ({Level.HIGH: Level.HIGH, Text("said"): 0}, b'{"high":"high","said":0}'),
    ],
)
def test_kinds_of_strings_and_numbers_are_strings_and_numbers(value: Any, written: bytes) -> None:
    """Members of enumerations and instances of subclasses are written as their plain values."""
    assert dumps(value) == written


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, "number is not finite @ $"),
        ({"a": [0.0, math.inf]}, "number is not finite @ $.a[1]"),
        ({"a": 2**63}, "integer beyond 64 bits @ $.a"),
        ([-(2**63) - 1], "integer beyond 64 bits @ $[0]"),
        ({"a": Decimal("NaN")}, "number is not finite @ $.a"),
        (Decimal("sNaN"), "number is not finite @ $"),
        (Decimal("-Infinity"), "number is not finite @ $"),
        (Decimal("1e999"), "number is not finite @ $"),
        (Decimal(2**63), "integer beyond 64 bits @ $"),
        ({"a": {"b": "\ud800"}}, "lone surrogate @ $.a.b"),
        (["ok", "\udfff"], "lone surrogate @ $[1]"),
        ({"\ud800": 1}, "lone surrogate in a key @ $"),
        ({1: 2}, "key 1 is not a string @ $"),
        ([{None: 2}], "key None is not a string @ $[0]"),
        ({"a": b"bytes"}, "bytes is not a JSON value @ $.a"),
        ({"a": {1, 2}}, "set is not a JSON value @ $.a"),
        ((object(),), "object is not a JSON value @ $[0]"),
        (Rank.ENDLESS, "integer beyond 64 bits @ $"),
        ([Share("nan")], "number is not finite @ $[0]"),
        ({"a": Level.BROKEN}, "lone surrogate @ $.a"),
        ({Text("\ud800"): 1}, "lone surrogate in a key @ $"),
        ({Rank.FIRST: 2}, "key <Rank.FIRST: 1> is not a string @ $"),
    ],
)
def test_what_cannot_be_written_is_refused(value: Any, problem: str) -> None:
    """Values that are not JSON are refused rather than changed: NaN to null, bytes to text."""
    with pytest.raises(ValueError, match=r".") as caught:
        dumps(value)
    assert str(caught.value) == problem


def test_a_cycle_is_refused() -> None:
    """A list that contains itself is refused as nested too deeply."""
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested too deeply"):
        dumps(loop)


def test_what_can_be_written_can_be_read() -> None:
    """Reader and writer have the same bound on nesting."""
    deepest = loads(nested(MAX_DEPTH))
    assert loads(dumps(deepest)) == deepest
    with pytest.raises(ValueError, match="nested too deeply"):
        dumps([deepest])


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=4).filter(lambda d: abs(d) < 10**15)
)
def test_a_decimal_is_written_as_its_digits(value: Decimal) -> None:
    """A Decimal is written as a number with its digits, and can be read back as a Decimal."""
    assert Decimal(dumps([value]).decode()[1:-1]) == value
    assert loads_exact(dumps({"a": value})) == {"a": value}


def test_tuples_are_arrays() -> None:
    """A tuple is written as an array."""
    assert dumps({"a": (1, "b", (None,))}) == b'{"a":[1,"b",[null]]}'
