"""Text that others wrote, made fit for a terminal: harmless, and of a width that is known.

An agent's words go to the terminal of whoever reads them. A terminal takes orders in its text: to
move the cursor, to overwrite what stands there, to set the title, to type an answer. So none are
let through, in any of the ways to write them.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

TAB_SPACES: Final = 4
ELLIPSIS: Final = "…"

# Escape sequences (ECMA-48), whole: what would be left of them is gibberish. No part of a pattern
# goes beyond the next introducer, so that hostile text costs no more than other text.
_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"  # strings
    r"|\x1b[ -/]*[0-~]"
)
_JOINERS: Final = "\u200c\u200d"
"""They take no room, turn nothing round, and some scripts and emoji need them."""
_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_ASCII: Final = re.compile(r"[ -~]*")

_BEYOND_JSON: Final = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def safe_lines(text: str) -> list[str]:
    """Split into lines in which nothing is an order to a terminal, or turns the reading round."""
    if _ASCII.fullmatch(text):
        return [text]
    text = _SEQUENCE.sub("", text).expandtabs(TAB_SPACES)
    return ["".join(filter(_is_safe, line)) for line in re.split(r"\r\n|[\n\r\v\f\x85]", text)]


def safe_line(text: str) -> str:
    """Put the same on one line."""
    return " ".join(line for line in safe_lines(text) if line)


def _is_safe(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character) not in _UNSAFE


def safe_json(line: str) -> str:
    """Escape what JSON may contain as it is, and a terminal would obey."""
    return _BEYOND_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def cells(text: str) -> int:
    """How many columns the text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(map(_cells_of, text))


def _cells_of(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        # One of them asks for a picture, which is twice as wide as the letter before it.
        return int(character == "\ufe0f")
    if character in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, columns: int) -> str:
    """Shorten the text to this many columns, saying so with an ellipsis."""
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


def padded(text: str, columns: int) -> str:
    """Fill the text with spaces to this many columns."""
    return text + " " * (columns - cells(text))
