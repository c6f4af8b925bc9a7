"""The grammar of agent references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.wire.agent_ref import AgentRef, parse_agent_ref
from arcp_trio.wire.errors import InvalidRequest

names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,60}", fullmatch=True)
versions = st.from_regex(r"[a-zA-Z0-9.+_-]{1,60}", fullmatch=True)


@pytest.mark.spec("7.5-1", "7.5-5")
@given(names, st.none() | versions)
def test_what_the_grammar_makes_is_read(name: str, version: str | None) -> None:
    """Every name and version of the grammar is read, and written as it was."""
    text = name if version is None else f"{name}@{version}"
    assert parse_agent_ref(text) == AgentRef(name, version)
    assert str(parse_agent_ref(text)) == text


@pytest.mark.spec("7.5-1")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "a@",
        "@1",
        "@",
        "A",
        "a@b@c",
        "-a",
        ".a",
        "_a",
        "a b",
        "a/b",
        "a@1 ",
        "a\n",
        "a@1\n",
        "ä",
        "a@ü",
        "٣",
        "a" * 10_000,
        "a@" + "1" * 10_000,
        "\ud800" * 300,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """Text that is endless, or not in the grammar, raises an InvalidRequest of bounded length."""
    with pytest.raises(InvalidRequest) as caught:
        parse_agent_ref(text)
    assert len(caught.value.message) < 300
    caught.value.message.encode()


@given(st.text(max_size=12))
def test_reading_never_fails_otherwise(text: str) -> None:
    """Any text either is a reference that reads back, or raises InvalidRequest."""
    try:
        reference = parse_agent_ref(text)
    except InvalidRequest:
        return
    assert str(reference) == text
