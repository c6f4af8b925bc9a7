"""Patterns of `agent.delegate`: agents by name, or by name and version (§7.5, §9.2)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arcp_trio.authority.grants import DELEGATE, never_matches, parse_grant
from arcp_trio.authority.patterns import Pattern
from arcp_trio.authority.subset import uncovered

WORDS = ["".join(word) for count in (1, 2, 3) for word in product("az", repeat=count)]
AGENTS = [f"{name}@{version}" for name in WORDS for version in WORDS]
"""Names and versions of up to three letters; no pattern below has a z."""

SHORT = st.text("a@*", min_size=1, max_size=5)
PATTERNS = st.one_of(SHORT, st.lists(st.one_of(SHORT, st.just("**")), min_size=1).map("/".join))


def read(text: str) -> Pattern:
    """Return a pattern of agents."""
    return parse_grant(DELEGATE, text)


def matched(text: str) -> set[str]:
    """Return the agents that a pattern allows, by its definition: by name, or as a whole."""
    plain = Pattern.parse(text)
    return {a for a in AGENTS if plain.matches(a) or plain.matches(a.partition("@")[0])}


def covered(child: str, *parents: str) -> bool:
    """Return whether one pattern is within others."""
    return uncovered([read(child)], [read(each) for each in parents]) is None


@pytest.mark.parametrize(
    ("pattern", "agent", "allowed"),
    [
        ("pdf-renderer@*", "pdf-renderer@1.0.0", True),
        ("pdf-renderer@1.*", "pdf-renderer@1.0.0", True),
        ("pdf-renderer@2.*", "pdf-renderer@1.0.0", False),
        ("pdf-renderer", "pdf-renderer@1.0.0", True),
        ("pdf-*", "pdf-renderer@1.0.0", True),
        ("pdf", "pdf-renderer@1.0.0", False),
        ("*@1.0.0", "echo@1.0.0", True),
        ("*", "echo@1.0.0", True),
        ("**", "echo@1.0.0", True),
        ("pdf-renderer@*", "pdf-renderer", False),
    ],
)
def test_an_agent_is_allowed_by_name_or_version(pattern: str, agent: str, *, allowed: bool) -> None:
    """A pattern matches the name, or the name with its version."""
    assert read(pattern).matches(agent) == allowed


@pytest.mark.parametrize(
    ("child", "parent", "within"),
    [
        ("pdf@*", "pdf", True),
        ("pdf", "pdf@*", True),
        ("*", "*@*", True),
        ("pdf@1.*", "pdf@*", True),
        ("pdf@*", "pdf@1.*", False),
        ("pdf", "pdf@1", False),
        ("*1", "*@*1", False),
        ("*@1", "*", True),
        ("a/b", "c", True),  # it allows no agent
    ],
)
def test_what_is_within(child: str, parent: str, *, within: bool) -> None:
    """A version may be left out on either side."""
    assert covered(child, parent) == within


@given(PATTERNS)
def test_a_pattern_allows_what_its_definition_says(text: str) -> None:
    """What a pattern allows, and whether it can allow anything, follow from its definition."""
    pattern = read(text)
    allowed = matched(text)
    assert {agent for agent in AGENTS if pattern.matches(agent)} == allowed
    if allowed:
        assert never_matches(DELEGATE, pattern) is None
    if never_matches(DELEGATE, pattern) is None:
        assert allowed or len(text) > 3


@given(PATTERNS, st.lists(PATTERNS, max_size=4))
@settings(max_examples=400)
def test_the_proof_is_exact(child: str, parents: list[str]) -> None:
    """A pattern is within others if and only if they allow every agent that it allows."""
    beyond = matched(child) - set().union(*map(matched, parents))
    if covered(child, *parents):
        assert not beyond
    elif child.count("*") <= 1 and len(child) <= 3:
        assert beyond  # a witness is short enough to be among the agents


@pytest.mark.parametrize("text", ["a/b", "pdf@", "@1", "a@b@c", "PDF", "-pdf@*", "pdf@1/2", "p q*"])
def test_what_no_agent_can_be_called(text: str) -> None:
    """Patterns that are not about names and versions of §7.5 match nothing."""
    assert never_matches(DELEGATE, read(text)) is not None
