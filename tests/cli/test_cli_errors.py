"""How an exception is reported in one line."""

from __future__ import annotations

import pytest

from arcp_trio.cli.errors import one_line


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
