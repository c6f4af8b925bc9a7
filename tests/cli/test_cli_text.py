"""Text of others made fit for a terminal."""

from __future__ import annotations

import json
import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.cli.client.output import json_line
from arcp_trio.cli.text import cells, exact_line, fitted, padded, safe_line, safe_lines, wrapped
from tests.cli.clients import HOSTILE

nasty = st.text(
    st.sampled_from("\x1b\x9b\x9d\x90\x9c\x07[]P0;mKHx \r\n\t\x00\u202e\u200d漢é😀\ufe0f"),
    max_size=40,
)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("plain words", ["plain words"]),
        ("", [""]),
        ("a\nb\r\nc\rd", ["a", "b", "c", "d"]),
        ("\x1b[31mred\x1b[0m", ["red"]),
        ("\x1b[31", ["31"]),
        ("\x1b\x1b[31m[31m", ["[31m"]),
        ("\x9b31mred", ["red"]),
        ("\x1b]0;title\x07after", ["after"]),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", ["link"]),
        ("\x1b]0;title that does not end", ["0;title that does not end"]),
        ("\x9dtitle\x9cafter", ["after"]),
        ("\x1bPq#0\x1b\\after", ["after"]),
        ("\x1b(0lqk", ["lqk"]),
        ("\x1bc", [""]),
        ("a\tb", ["a   b"]),
        ("a\x08b\x7fc\x00", ["abc"]),
        ("\u202eevil\u2066\u200f", ["evil"]),
        ("\u2028line\u2029", ["line"]),
        ("👩\u200d👩 é 漢", ["👩\u200d👩 é 漢"]),
    ],
)
def test_control_sequences_are_removed(text: str, lines: list[str]) -> None:
    """Control sequences are removed in each of their spellings; readable text stays."""
    assert safe_lines(text) == lines


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Allow fs.write of /srv/a b?", "Allow fs.write of /srv/a b?"),
        ("/café/漢", "/café/漢"),
        ("cart\u200b.py", "cart\\u200b.py"),
        ("a\u200db\ufe0f", "a\\u200db\\ufe0f"),
        ("\u202efdp.exe", "\\u202efdp.exe"),
        ("a\u00a0b\u3164", "a\\xa0b\\u3164"),
        ("\U000e0041", "\\U000e0041"),
        ("one\ntwo\x1b[31m", "one\\ntwo\\x1b[31m"),
    ],
)
def test_nothing_is_missing(text: str, line: str) -> None:
    """What cannot be seen is escaped where a person has to see all of a text."""
    assert exact_line(text) == line


@given(nasty | st.text())
def test_nothing_gets_through(text: str) -> None:
    """No control character and no invisible one is left, except two joiners."""
    lines = safe_lines(text)
    left = {unicodedata.category(c) for line in lines for c in line if c not in "\u200c\u200d"}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert "\n" not in safe_line(text)


@given(nasty | st.text(st.characters(exclude_categories=["Cs"])))
def test_json_is_the_same_and_harmless(text: str) -> None:
    """A line of JSON keeps its meaning, and has no control characters."""
    line = json_line({text: text})
    assert json.loads(line) == {text: text}
    assert line.endswith("\n")
    assert not any(unicodedata.category(c) == "Cc" for c in line[:-1])


@given(nasty, st.integers(0, 30))
def test_it_fits(text: str, columns: int) -> None:
    """A fitted text takes at most the given columns; a text that fits stays as it is."""
    line = safe_line(text)
    short = fitted(line, columns)
    assert cells(short) <= columns
    assert (short == line) is (cells(line) <= columns)
    assert cells(padded(short, 30)) == 30


def test_widths() -> None:
    """East Asian characters and emoji take two columns, combining ones none."""
    assert [cells(text) for text in ("ab", "漢字", "e\u0301", "😀", "")] == [2, 4, 1, 2, 0]
    assert fitted("漢字漢字", 5) == "漢字…"
    assert fitted("漢字漢字", 6) == "漢字…"


@pytest.mark.parametrize(
    "part", ["\x1b", "\x9d", "\x1b]", "\x1b[", "\x9b0", "\x1b]0\x1b", HOSTILE, "漢"]
)
def test_hostile_text_takes_no_longer(part: str) -> None:
    """The time grows with the length of the text, and not with its square."""
    text = part * (1_000_000 // len(part))
    begun = time.process_time()
    safe_lines(text)
    assert time.process_time() - begun < 5


@given(st.text(max_size=200), st.integers(8, 40))
def test_a_wrapped_line_is_all_there(text: str, columns: int) -> None:
    """Pieces fit, say that they go on, and together are the line."""
    line = exact_line(text)
    first, *others = wrapped(line, columns)
    assert all(cells(piece) <= columns for piece in (first, *others))
    assert all(piece.startswith("  ↪ ") for piece in others)
    assert first + "".join(piece[4:] for piece in others) == line
