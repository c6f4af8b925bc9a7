"""What one check of a lease may cost, counted in steps and not by the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.authority import patterns as matching
from arcp_trio.authority.lease import MAX_WORK, Lease
from arcp_trio.authority.targets import forms
from tests.authority.oracle import oracle, patterns

DEEP = "/" + "/".join(["a" * 15] * 255)

HOSTILE = {
    "stars": "/".join(["*a*a*a*"] * 30 + ["*b*a{}"]),
    "any segments": "/".join(["*"] * 30 + ["*b*a{}"]),
    "literals": "/".join(["a" * 15] * 14 + ["*b*a{}"]),
}


@given(st.lists(patterns, max_size=6), st.text("ab/:", min_size=1, max_size=9))
def test_the_bound_changes_no_answer(texts: list[str], form: str) -> None:
    """A lease allows what one of its patterns matches, as without the bound."""
    lease = Lease.read({"tool.call": texts})
    assert lease.allows("tool.call", [form]) == any(oracle(text, form) for text in texts)


def test_ordinary_leases_are_far_from_the_bound() -> None:
    """A thousand ordinary patterns and a deep path need a small part of what is allowed."""
    path = "/srv/" + "/".join(f"part{n}" for n in range(20)) + "/main.py"
    ordinary = ["/srv/p{}/**", "/srv/**/dir{}/**/*.py", "**/*.{}", "/srv/**/part{}/*.py"]
    texts = [text.format(n) for n in range(250) for text in ordinary]
    lease = Lease.read({"fs.read": texts})
    work = sum(each.work(path) for each in lease.grants["fs.read"] if each.may_match(path))
    assert work < MAX_WORK / 10
    assert lease.allows("fs.read", ["/srv/p249/a"])
    assert lease.allows("fs.read", ["/srv/x/dir249/y/z.py"])


@pytest.mark.parametrize("blocks", HOSTILE.values(), ids=HOSTILE)
def test_hostile_patterns_are_not_looked_at_for_long(
    blocks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many patterns are made to be slow, the comparisons of a check are bounded."""
    compared = 0
    compare = matching._segment_matches

    def counted(parts: tuple[str, ...], segment: str) -> bool:
        nonlocal compared
        compared += 1
        return compare(parts, segment)

    monkeypatch.setattr(matching, "_segment_matches", counted)
    texts = [f"/**/{blocks.format('a' * (n % 10))}/**" for n in range(240)]
    lease = Lease.read({"fs.read": texts})
    assert not lease.allows("fs.read", forms("fs.read", f"{DEEP[:-1]}b"))
    # Each comparison of a segment is of one character of a pattern at least, and its slash.
    assert 0 < compared <= MAX_WORK / 2


def test_what_takes_too_long_is_not_allowed() -> None:
    """A pattern beyond the bound counts as not matching; one before it matches still."""
    slow = [f"/**/{HOSTILE['stars'].format('a' * (n % 10))}/**" for n in range(240)]
    path = f"{DEEP[:-1]}b"
    last, first = Lease.read({"fs.read": [*slow, "/**"]}), Lease.read({"fs.read": ["/**", *slow]})
    assert not last.allows("fs.read", [path])
    assert first.allows("fs.read", [path])
