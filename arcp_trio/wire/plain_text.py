"""Text of others as one line of plain text, for listings."""

from __future__ import annotations

import re
from typing import Final

# Whole escape sequences (ECMA-48), since the rest of one is gibberish. No part of a pattern matches
# beyond the next introducer, so that hostile text takes no longer than other text.
SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x80-\x9f]*(?:\x07|\x1b\\|\x9c)"  # strings
    r"|\x1b[ -/]*[0-~]"
)
JOINERS: Final = "\u200c\u200d"
"""Characters without width that some scripts and emoji need; they do not change the direction."""
_ELLIPSIS: Final = "…"


def one_line(text: str, most: int) -> str:
    """Return a text as one line of at most `most` characters, none of which is a control."""
    # No more is looked at than may be needed: the text may be as long as a frame.
    text = SEQUENCE.sub("", text[: 4 * most])
    clean = "".join(each if _is_plain(each) else " " for each in text)
    line = " ".join(clean.split())
    return line if len(line) <= most else line[: most - 1] + _ELLIPSIS


def _is_plain(character: str) -> bool:
    return character.isprintable() or character in JOINERS
