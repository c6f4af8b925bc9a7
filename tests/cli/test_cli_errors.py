"""How an exception is reported in one line."""

from __future__ import annotations

import pytest

from arcp_trio.cli.errors import one_line, plainly


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("first\nsecond"), "ValueError: first"),
        (ValueError(), "ValueError"),
        (ExceptionGroup("a", [ExceptionGroup("b", [OSError("no room")])]), "OSError: no room"),
        (ExceptionGroup("two", [OSError(), OSError()]), "ExceptionGroup: two (2 sub-exceptions)"),
    ],
)
def test_an_exception_in_one_line(error: Exception, line: str) -> None:
    """The line has the exception, without the groups of nurseries around it."""
    assert one_line(error) == line


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("expected an object @ $.payload.lease.cost", "lease.cost: expected an object"),
        ("expected an object @ $.payload", "expected an object"),
        ("expected a text @ $.type", "type: expected a text"),
        ("write to me @ home", "write to me @ home"),
        ("it costs @ $ 5", "it costs @ $ 5"),
        ("no place", "no place"),
    ],
)
def test_a_place_in_words(message: str, words: str) -> None:
    """What a refusal says of a place in a message comes first, and has no signs."""
    assert plainly(message) == words


def test_a_place_within_a_place() -> None:
    """What people know already is left out."""
    assert plainly("at most 3 @ $.payload.answer.a[1]", "$.payload.answer") == "a[1]: at most 3"
