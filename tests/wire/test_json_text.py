"""A large value that is only handed on is refused where a decoder would refuse it, or kept."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from arcp_trio.wire.envelope import MalformedFrame, decode
from arcp_trio.wire.fingerprint import fingerprint
from arcp_trio.wire.json import JsonText, loads
from arcp_trio.wire.messages import Submit, parse

LEVELS = 60
LARGE = 10_000

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(),
    st.just("\ud800"),
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))
ODD = (
    *('"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\x"', '"\t"', '"\\u12"'),
    *("1e999", "1E+400", "1.5e400", "1e308", "-0", "01", "1.", ".5", "9" * 400, "9" * 19, "1e-999"),
    *("[1,]", '{"a":1,}', "NaN", "tru", "[1 2]", "[" * 70 + "]" * 70, "[" * 58 + "]" * 58),
)


def frame(text: str) -> str:
    """Return a submit with this input, and so much more that the frame is large."""
    payload = f'{{"agent":"echo","x":"{"x" * LARGE}","input":{text}}}'
    return f'{{"arcp":"1.1","id":"s1","type":"job.submit","payload":{payload}}}'


def filled(text: str) -> str:
    """Return an input that is kept as text, with this one in it."""
    return f'["{"x" * LARGE}",{text}]'


def refusal(text: str, large: float) -> str | None:
    """Return how a submit is refused; None if it is not."""
    try:
        decode(frame(filled(text)), max_depth=LEVELS, large=int(large))
    except MalformedFrame as error:
        return error.message
    return None


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_refused_alike(text: str) -> None:
    """Whether a value is decoded or not, the same ones are refused, with the same words."""
    assert refusal(text, 0) == refusal(text, 10**9)


@given(values)
@example(math.inf)
def test_values_are_refused_alike(value: object) -> None:
    """The same holds for all that Python calls JSON."""
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False)):
        assert refusal(text, 0) == refusal(text, 10**9)


def test_a_large_input_is_handed_on_as_it_came() -> None:
    """The runtime makes no objects of it; it is the same input as one that was decoded."""
    text = filled('{"b": 1.0,  "a": [2]}')
    kept, read = parse(decode(frame(text), large=100)), parse(decode(frame(text)))
    assert isinstance(kept, Submit)
    assert isinstance(read, Submit)
    assert kept.input == JsonText(text.encode())
    assert kept.is_large
    assert not read.is_large
    assert loads(kept.input_text.text) == read.input == loads(read.input_text.text)
    assert fingerprint(kept) == fingerprint(read)


@given(values)
def test_fingerprints_do_not_depend_on_the_size(value: object) -> None:
    """Equal inputs have one fingerprint, whether or not they were decoded."""
    text = filled(json.dumps(value))
    if refusal(json.dumps(value), 0) is not None:
        return
    kept, read = parse(decode(frame(text), large=100)), parse(decode(frame(text)))
    assert isinstance(kept, Submit)
    assert isinstance(read, Submit)
    assert fingerprint(kept) == fingerprint(read)
