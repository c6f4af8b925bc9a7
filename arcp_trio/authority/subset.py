"""The check that a delegated lease stays within its parent's (§9.4): patterns within patterns.

A few strings, the witnesses of a pattern, stand for all that it matches. In a witness, each `*` of
the pattern is a character that no pattern has: only a star matches it, and a star that does matches
any character. Each `**` is one empty segment: no literal matches it, because patterns have no empty
segments, and neither does a `*`. So only a `**` matches it, and a `**` that does matches any number
of segments of any kind. Hence a pattern that matches a witness matches everything for which the
witness stands; and if several patterns together match all that another one matches, one of them
matches the witness. No union has to be computed.

The first two segments are an exception, because patterns may have empty segments there: before an
absolute path, and in `scheme://`. Where a `**` begins among them, each way to fill them is a
witness of its own: no segment, an empty one, and one that is not empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from arcp_trio.authority.patterns import Pattern

MAX_WORK: Final = 20_000_000
"""Characters of patterns that are looked at, at most: about two seconds in the worst case.

Beyond it, nothing counts as covered. A hundred ordinary patterns against a hundred need less than a
tenth of it.
"""


def uncovered(children: Sequence[Pattern], parents: Sequence[Pattern]) -> Pattern | None:
    """Return the first child pattern that the parents do not cover; None if they cover all.

    The parents cover a child if every string that it matches is matched by one of them, and the
    result is exact. Only a pattern that takes too long to check (`MAX_WORK`) counts as not covered
    without a check.
    """
    known = frozenset(parents)
    work = 0
    for child in children:
        if child in known:
            continue
        for witness in child.witnesses():
            for parent in parents:
                if not parent.may_match(witness):
                    continue
                work += parent.work(witness)
                if work <= MAX_WORK and parent.matches(witness):
                    break
            else:
                return child
    return None
