"""Text of others as one line of plain text, for listings."""

from __future__ import annotations

from typing import Final

_JOINERS: Final = "\u200c\u200d"
"""Characters without width that some scripts and emoji need."""
_ELLIPSIS: Final = "…"


def one_line(text: str, most: int) -> str:
    """Return a text as one line of at most `most` characters, none of which is a control."""
    # No more is looked at than may be needed: the text may be as long as a frame.
    clean = "".join(each if _is_plain(each) else " " for each in text[: 4 * most])
    line = " ".join(clean.split())
    return line if len(line) <= most else line[: most - 1] + _ELLIPSIS


def _is_plain(character: str) -> bool:
    return character.isprintable() or character in _JOINERS
