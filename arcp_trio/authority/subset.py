"""Whether a delegated lease stays within its parent's (§9.4): patterns within other patterns.

A few strings, its witnesses, stand for all that a pattern matches. In them each `*` is a character
that no pattern has: only a star can take it, and a star that takes it takes anything. Each `**` is
one empty segment: no literal takes it, for patterns have no empty segments, nor does a `*`. So only
a `**` can, and one that does takes any number of segments of any kind. Hence a pattern that matches
a witness matches everything the witness stands for; and where several patterns together match all
that another does, one of them matches its witness. No union has to be computed.

The first two segments are an exception, for there patterns may have empty ones: before an absolute
path, and in `scheme://`. Where a `**` begins among them, each way in which it may fill them is a
witness of its own: nothing, an empty segment, one that is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from arcp_trio.authority.patterns import STARS, Pattern

FRESH: Final = "\0"
"""The character that no pattern has: they are refused with control characters."""

MAX_WORK: Final = 20_000_000
"""In characters of patterns looked at: about two seconds of the worst, then nothing is covered.

A hundred ordinary patterns against a hundred need less than a tenth of it.
"""

_MAY_BE_EMPTY: Final = 2


def uncovered(children: Sequence[Pattern], parents: Sequence[Pattern]) -> Pattern | None:
    """The first child that matches something that no parent does; None if there is none.

    It is exact: a child is covered if and only if each string that it matches is matched by some
    parent. Only patterns made to be slow (`MAX_WORK`) end it early, as if not covered.
    """
    known = frozenset(parents)
    work = 0
    for child in children:
        if child in known:
            continue
        for witness in witnesses(child):
            for parent in _candidates(parents, witness):
                work += _work(parent.text, witness)
                if work <= MAX_WORK and parent.matches(witness):
                    break
            else:
                return child
    return None


def _candidates(parents: Sequence[Pattern], witness: str) -> Iterator[Pattern]:
    for parent in parents:
        if witness.startswith(parent.prefix) and parent.part in witness:
            yield parent


def _work(text: str, witness: str) -> int:
    """Count what stands between two `**` once for each place at which it may have to be tried."""
    between = text.rfind("**") - text.find("**")
    return len(text) + between * (witness.count("/") + 1)


def witnesses(pattern: Pattern) -> Iterator[str]:
    """Strings that a pattern matches; patterns that match all of these match all that it does."""
    words: list[list[str]] = [[]]
    previous = ""
    for segment in pattern.text.split("/"):
        if segment != "**":
            words = [[*word, STARS.sub(FRESH, segment)] for word in words]
        elif previous != "**":
            words = [filled for word in words for filled in _filled(word)]
        previous = segment
    return map("/".join, words)


def _filled(word: list[str]) -> list[list[str]]:
    """What a `**` after these segments may be."""
    if len(word) >= _MAY_BE_EMPTY:
        return [[*word, ""]]
    return [word, *_filled([*word, FRESH]), *_filled([*word, ""])]
