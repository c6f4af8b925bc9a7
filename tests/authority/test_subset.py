"""Patterns within other patterns."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arcp_trio.authority import subset
from arcp_trio.authority.patterns import FRESH, Pattern
from arcp_trio.authority.subset import uncovered
from tests.authority.oracle import STRINGS, oracle, patterns


def covered(child: str, *parents: str) -> bool:
    """Return whether one pattern is within others."""
    return uncovered([Pattern.parse(child)], [Pattern.parse(each) for each in parents]) is None


@pytest.mark.spec("9.4-1", "9.4-8")
@pytest.mark.parametrize(
    ("child", "parents"),
    [
        ("/a/**", ["/a/**"]),
        ("/a/b/*", ["/a/**"]),
        ("/a/b/c", ["/a/**"]),
        ("/a", ["/a/**"]),
        ("/a/**/b/**", ["/a/**"]),
        ("/a/*/*", ["/a/*/**"]),
        ("/a/b*", ["/a/*"]),
        ("/a/*b*c*", ["/a/*c*"]),
        ("/a/*.tar.gz", ["/a/*.gz"]),
        ("/a/**/*.py", ["/a/**/*py"]),
        ("/a/x/**/y/z", ["/a/**/z"]),
        ("search.web", ["search.*"]),
        ("tier-fast/opus", ["tier-*/*"]),
        ("tier-fast/a-preview/*", ["tier-fast/*-preview/*"]),
        ("gpt-4o-*", ["gpt-*", "claude-*"]),
        ("a**b", ["a*b"]),
        ("***", ["*"]),
        ("a/**/**/b", ["a/**/b"]),
        ("a/*/**", ["a/**/*/**"]),
        ("a/*/**", ["a/**"]),
        ("**/a/**/b", ["**/b"]),
        ("https://api.example.com/v1/*", ["https://*.example.com/**"]),
        # only together
        ("**", ["*/**", "/**"]),
        ("b:/**", ["b:", "b:/*/**", "b://**"]),
        ("**/a", ["a", "*/**/a", "/**/a"]),
    ],
)
def test_what_is_within(child: str, parents: Sequence[str]) -> None:
    """A pattern is within others if they match all that it matches, if only together."""
    assert covered(child, *parents)


@pytest.mark.spec("9.4-1", "9.4-8")
@pytest.mark.parametrize(
    ("child", "parents"),
    [
        ("/data/**", ["/data/*"]),
        ("/a/*", ["/a/b"]),
        ("/a/*", ["/a/b*", "/a/c*"]),
        ("/a/**", ["/a/*/**"]),
        ("/a/**", ["/a/**/b"]),
        ("/a/**/b", ["/a/*/b"]),
        ("/ab/**", ["/a/**"]),
        ("**", ["/**"]),
        ("**", ["*/**"]),
        ("a:/**", ["a://**"]),
        ("a:/**", ["a:", "a://**"]),
        ("**/b", ["b", "/**/b", "*://**/b"]),
        ("**/a", ["*/a", "a"]),
        ("*", ["*/**/*"]),
        ("gpt-5", ["gpt-*o"]),
        ("gpt-*", ["gpt-*o"]),
        ("tier-*/sonnet", ["tier-fast/opus", "tier-fast/sonnet"]),
        ("tier-*/sonnet", ["tier-fast/*"]),
        ("a*", ["*a"]),
        ("a*a", ["a", "a*aa"]),
        ("/a", []),
        ("https://*.com/**", ["https://*.example.com/**"]),
        # a ** may be an empty segment, as URLs may have them, but a * may not
        ("/a/**", ["/a", "/a/*/**"]),
        ("a/**/*/**", ["a/*/**"]),
    ],
)
def test_what_goes_beyond(child: str, parents: Sequence[str]) -> None:
    """A pattern that matches a single string more than others is not within them."""
    assert not covered(child, *parents)


def test_the_first_that_goes_beyond_is_named() -> None:
    """The first pattern that is not covered is returned."""
    children = [Pattern.parse(text) for text in ("/a/b", "/c", "/d")]
    assert uncovered(children, [Pattern.parse("/a/*")]) is children[1]
    assert uncovered([], []) is None


_leases = st.lists(patterns, max_size=4)


@st.composite
def _wider(draw: st.DrawFn, pattern: str) -> str:
    """Draw a pattern like another one, with some segments made wider."""
    first, *rest = pattern.split("/")
    wide = [first]
    for segment in rest:
        choices = [segment, "*", "**", segment[:1] + "*", "*" + segment[-1:]] if segment else [""]
        wide.append(draw(st.sampled_from(choices)))
    return "/".join(wide)


@given(patterns, _leases, st.data())
@settings(max_examples=300)
def test_whatever_is_accepted_adds_nothing(
    child: str, parents: list[str], data: st.DataObject
) -> None:
    """No string that an accepted child matches is one that no parent matches."""
    parents += data.draw(st.lists(_wider(child), max_size=3))
    if covered(child, *parents):
        parsed = [Pattern.parse(each) for each in (child, *parents)]
        matched = filter(parsed[0].matches, STRINGS)
        assert all(any(each.matches(string) for each in parsed[1:]) for string in matched)


@given(patterns, _leases, st.data())
@settings(max_examples=300)
def test_whatever_is_refused_adds_something(
    child: str, parents: list[str], data: st.DataObject
) -> None:
    """For each refused child there is a string that it matches and no parent does."""
    parents += data.draw(st.lists(_wider(child), max_size=3))
    if not covered(child, *parents):
        strings = [witness.replace(FRESH, "z") for witness in Pattern.parse(child).witnesses()]
        assert any(
            oracle(child, string) and not any(oracle(parent, string) for parent in parents)
            for string in strings
        )


@given(patterns)
def test_a_pattern_is_within_itself(pattern: str) -> None:
    """A pattern is within itself."""
    same = "/".join("**/**" if segment == "**" else segment for segment in pattern.split("/"))
    assert covered(pattern, pattern)
    assert covered(pattern, same)
    assert covered(same, pattern)


@given(patterns, st.data())
def test_within_what_is_within(pattern: str, data: st.DataObject) -> None:
    """The relation is transitive."""
    wider = data.draw(_wider(pattern))
    widest = data.draw(_wider(wider))
    if covered(pattern, wider) and covered(wider, widest):
        assert covered(pattern, widest)


@given(patterns)
def test_witnesses_are_matched(pattern: str) -> None:
    """A pattern matches its witnesses, and they are few."""
    words = [witness.replace(FRESH, "z") for witness in Pattern.parse(pattern).witnesses()]
    assert 0 < len(words) < 10
    assert all(oracle(pattern, word) for word in words)


def _many(form: str, count: int = 100) -> list[Pattern]:
    return [Pattern.parse(form.format(number)) for number in range(count)]


@pytest.mark.parametrize(
    ("children", "parents"),
    [
        ("/ws/dir{}/src/*.py", "/ws/dir{}/**"),
        ("**/dir{}/src/**/*.py", "**/dir{}/**/*.py"),
        ("https://api{}.example.com/v1/**", "https://api{}.*.com/**"),
        ("tier-{}/*-preview/x", "tier-{}/*/*"),
        ("**/a*/**/b*/{}", "**/a*/**/{}"),
    ],
)
def test_ordinary_patterns_are_far_from_the_bound(
    monkeypatch: pytest.MonkeyPatch, children: str, parents: str
) -> None:
    """A hundred ordinary patterns against a hundred need a tenth of `MAX_WORK`."""
    monkeypatch.setattr(subset, "MAX_WORK", subset.MAX_WORK // 10)
    assert uncovered(_many(children), _many(parents)) is None


@pytest.mark.parametrize(
    ("children", "parents"),
    [
        ("**/" * 40 + "a{}", "**/" * 40 + "*b"),
        ("**/*a/" * 40 + "{}", "**/*a/" * 40 + "*b/**"),
        ("**/" + "*a/" * 120 + "{}", "**/" + "*a/" * 60 + "*b/**"),
        ("*a" * 500 + "{}", "*a" * 500 + "*b*"),
        ("/*a" * 60 + "/{}", "/*a" * 60 + "/b*"),
    ],
)
def test_hostile_patterns_end_in_time(children: str, parents: str) -> None:
    """Patterns made to be slow are decided within seconds."""
    everything = Pattern.parse("**")
    start = time.perf_counter()
    uncovered(_many(children, 300), [*[Pattern.parse(parents)] * 300, everything])
    assert time.perf_counter() - start < 20


def test_what_takes_too_long_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `MAX_WORK`, a pattern counts as not covered."""
    monkeypatch.setattr(subset, "MAX_WORK", 0)
    assert not covered("/a/b", "/a/*")
