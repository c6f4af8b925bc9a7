"""Makes text that others wrote safe for a terminal, and measures its width.

What an agent says is shown on the terminal of a person. A terminal obeys control sequences in its
text: they move the cursor, overwrite lines, set the title, or type an answer. None of them are let
through, in any of the ways to write them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from arcp_trio.wire.plain_text import JOINERS, SEQUENCE

TAB_SPACES: Final = 4
ELLIPSIS: Final = "…"
_CONTINUED: Final = "  ↪ "
"""What begins a line that goes on with the one before."""

_UNFINISHED: Final = re.compile(
    r"(?:\r|\x1b(?:\[[0-?]*)?[ -/]*|\x9b[0-?]*[ -/]*"
    r"|(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*\x1b?)\Z"
)
"""The beginning of a sequence, or of a line break, at the end of a text."""
_MOST_HELD: Final = 256
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_ASCII: Final = re.compile(r"[ -~]*")

_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters that show nothing, though they count as letters, signs or marks."""

_BEYOND_JSON: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def safe_lines(text: str) -> list[str]:
    """Return the lines of a text without control sequences and characters that reverse text."""
    if _ASCII.fullmatch(text):
        return [text]
    text = SEQUENCE.sub("", text).expandtabs(TAB_SPACES)
    return ["".join(filter(_is_safe, line)) for line in re.split(r"\r\n|[\n\r\v\f\x85]", text)]


def safe_line(text: str) -> str:
    """Return the same as one line."""
    return " ".join(line for line in safe_lines(text) if line)


def exact_line(text: str) -> str:
    """Return a text as one line in which nothing is missing: what cannot be seen is escaped."""
    return "".join(
        each if _is_seen(each) else each.encode("unicode_escape").decode() for each in text
    )


def _is_seen(character: str) -> bool:
    if character == " ":
        return True
    return unicodedata.category(character)[0] not in "CZ" and not _BLANK.match(character)


class SafeText:
    """Makes a text safe that comes in pieces, wherever it is cut."""

    def __init__(self) -> None:
        self._held = ""
        """The beginning of what may be a control sequence, or the end of a line."""
        self._column = 0

    def add(self, piece: str) -> str:
        """Return as much of the text as is complete."""
        text = self._held + piece
        unfinished = _UNFINISHED.search(text[-_MOST_HELD:])
        complete = len(text) - (len(unfinished[0]) if unfinished else 0)
        self._held = text[complete:]
        return self._safe(text[:complete])

    def end(self) -> str:
        """Return the rest."""
        held, self._held = self._held, ""
        return self._safe(held)

    def _safe(self, text: str) -> str:
        before = " " * (self._column % TAB_SPACES)  # a tab's width depends on where it stands
        lines = safe_lines(before + text)
        self._column = len(lines[-1])
        return "\n".join(lines)[len(before) :]


def _is_safe(character: str) -> bool:
    return character in JOINERS or unicodedata.category(character) not in _UNSAFE


def safe_json(line: str) -> str:
    """Escape the characters of a JSON text that JSON allows and a terminal would obey."""
    return _BEYOND_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def cells(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        # U+FE0F makes a picture of the character before it, which is then one column wider.
        return int(character == "\ufe0f")
    if character in JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, columns: int) -> str:
    """Shorten a text to at most `columns`, with an ellipsis at its end."""
    if cells(text) <= columns:
        return text
    room = columns - 1
    kept: list[str] = []
    for character in text:
        room -= _cells_of(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS if columns > 0 else ""


def wrapped(text: str, columns: int) -> Iterator[str]:
    """Yield a line in pieces of at most `columns`; each but the first begins with a mark.

    A terminal wraps a long line by itself, and then a part of it looks like a line of its own.
    """
    piece, width = "", 0
    for character in text:
        width += _cells_of(character)
        if width > columns:
            yield piece
            piece, width = _CONTINUED, len(_CONTINUED) + _cells_of(character)
        piece += character
    yield piece


def padded(text: str, columns: int) -> str:
    """Fill a text with spaces up to `columns`."""
    return text + " " * (columns - cells(text))
