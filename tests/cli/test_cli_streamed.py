"""A streamed result as `submit` writes it: to a terminal and to a pipe, as it comes."""

from __future__ import annotations

import json
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.cli.text import SafeText, safe_lines
from tests.cli.clients import HOSTILE, Commands
from tests.cli.terminals import terminal


def typing(*words: str, hang: bool = False) -> tuple[str, ...]:
    """Return a command whose job streams these words, one after the other."""
    return ("submit", "typist", "--input", json.dumps({"words": words, "hang": hang}))


@pytest.mark.real_tcp
@pytest.mark.parametrize("columns", [80, 40])
def test_it_grows_on_the_terminal(commands: Commands, columns: int) -> None:
    """Each chunk is on the screen before the next one comes, and the whole stays there."""
    with terminal(commands, *typing("one ", "two\nthr", "ee", hang=True), columns=columns) as on:
        on.wait_for("ee")
        assert on.lines[-2:] == ["one two", "three"]
        on.type("\x03")
        on.wait_for("(g)o on watching? ")
        assert on.lines[-2].startswith("three")
        on.type("c\n")
        assert on.end() == 4
    with terminal(commands, *typing("one ", "two\nthr", "ee"), columns=columns) as on:
        assert on.end() == 0
    assert on.lines[-3:] == ["one two", "three", ""]


@pytest.mark.real_tcp
def test_what_an_agent_writes_is_shown_at_once(commands: Commands) -> None:
    """What is written is on the screen while the agent is silent."""
    with terminal(commands, "submit", "novelist") as on:
        on.wait_for("It was a dark night.")
        on.type("\x03")
        on.wait_for("(g)o on watching? ")
        on.type("c\n")
        assert on.end() == 4


@pytest.mark.real_tcp
def test_lines_between_chunks_begin_a_line(commands: Commands) -> None:
    """A line of the log is not written behind text of the result."""
    with terminal(commands, *typing("one", "log", "two")) as on:
        assert on.end() == 0
    assert on.lines[-4:] == ["one", "info: log", "two", ""]


@pytest.mark.real_tcp
@pytest.mark.parametrize("columns", [80, 40])
def test_hostile_chunks(commands: Commands, columns: int) -> None:
    """A control sequence that is cut into chunks does nothing, either."""
    with terminal(commands, *typing(*HOSTILE), columns=columns) as on:
        assert on.end() == 0
    assert on.lines[-3:] == ["red", "gnp.exe 漢", ""]


@pytest.mark.real_tcp
def test_it_comes_through_a_pipe(commands: Commands) -> None:
    """Each chunk is written to a pipe when it comes, byte for byte."""
    with commands.start(*typing("one\n", "two", hang=True)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        assert process.stdout.read(3) == "two"
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert commands.run("cancel", out.strip()).code == 0
    assert commands.run(*typing("one\n", "\x1b[", "2Jtwo")).raw == b"one\n\x1b[2Jtwo"


pieces = st.lists(
    st.text(st.sampled_from("a漢 \r\n\x1b[]0;mJ\x07\x9b\x9c\u202e\\"), max_size=8), max_size=8
)


@given(pieces)
def test_pieces_are_as_safe_as_the_whole(cut: list[str]) -> None:
    """Wherever a text is cut, what is shown of it is the same, and harmless."""
    safe = SafeText()
    shown = "".join(map(safe.add, cut)) + safe.end()
    assert shown == "\n".join(safe_lines("".join(cut)))


def test_tabs_reach_the_same_columns() -> None:
    """A tab is as wide as it is in the whole line."""
    safe = SafeText()
    assert "".join(map(safe.add, ["a", "bc\td", "\te"])) == "abc d   e"
