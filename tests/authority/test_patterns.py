"""Patterns: what they match, and which texts are refused."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.authority.grants import never_matches, parse_grant
from arcp_trio.authority.patterns import MAX_LENGTH, MAX_SEGMENTS, Pattern
from arcp_trio.authority.targets import forms
from tests.authority.oracle import oracle, patterns


@pytest.mark.spec("9.2-1")
@pytest.mark.parametrize(
    ("pattern", "form", "matched"),
    [
        # ** is any number of segments
        ("/ws/**", "/ws", True),
        ("/ws/**", "/ws/a", True),
        ("/ws/**", "/ws/a/b/c", True),
        ("/ws/**", "/ws2/a", False),
        ("/ws/**", "/wsx", False),
        ("/ws/**", "/w", False),
        ("/ws/**", "ws/a", False),
        ("/ws/**/x", "/ws/x", True),
        ("/ws/**/x", "/ws/a/b/x", True),
        ("/ws/**/x", "/ws/a/b/xx", False),
        ("/**", "/", True),
        ("**", "anything/at/all", True),
        ("**/x", "/a/x", True),
        ("**/x", "x", True),
        ("**/a/**/a/**", "a", False),
        ("**/a/**/a/**", "/b/a/a", True),
        ("**/a/b/**/c", "a/a/b/c", True),
        ("a/**/b/**/c", "a/c/b", False),
        # * stays within its segment
        ("/ws/*", "/ws/a", True),
        ("/ws/*", "/ws/a/b", False),
        ("/ws/*", "/ws/", False),
        ("/ws/*", "/ws", False),
        ("/ws/***", "/ws/", False),
        ("/ws/*.py", "/ws/a.py", True),
        ("/ws/*.py", "/ws/.py", True),
        ("/ws/*.py", "/ws/d/a.py", False),
        ("/ws/a**", "/ws/ab", True),
        ("/ws/a**", "/ws/a/b", False),
        ("*", "a/b", False),
        ("search.*", "search.a.b", True),
        ("search.*", "search", False),
        ("a*a", "a", False),
        ("a*ab*b", "aab", False),
        ("a*ab*b", "aabb", True),
        ("gpt-*o", "gpt-5", False),
        ("gpt-*o", "gpt-4o", True),
        ("tier-fast/*-preview/*", "tier-fast/a-preview/b", True),
        # all else is literal, and anchored
        ("a.b", "axb", False),
        ("a+b", "aab", False),
        ("(a|b)", "a", False),
        ("(a|b)", "(a|b)", True),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a?", "ab", False),
        ("a?", "a?", True),
        ("a$", "a", False),
        ("a", "a\n", False),
        ("a*", "a\nb", True),
        ("a", "xa", False),
        ("a", "A", False),
        ("mcp:github/*", "mcp:github/issue", True),
    ],
)
def test_what_a_pattern_matches(pattern: str, form: str, *, matched: bool) -> None:
    """`**` matches any number of segments, `*` stays in one, other characters are literal."""
    assert Pattern.parse(pattern).matches(form) is matched
    assert oracle(pattern, form) is matched


@given(patterns, st.text("ab/:", max_size=9))
def test_matching_is_what_the_definition_says(pattern: str, form: str) -> None:
    """Matching agrees with the oracle, which tries everything."""
    assert Pattern.parse(pattern).matches(form) is oracle(pattern, form)


@given(patterns, st.data())
def test_what_is_made_from_a_pattern_is_matched(pattern: str, data: st.DataObject) -> None:
    """A pattern matches each string that is made from it by filling its stars."""
    anything = st.text("ab", max_size=3)
    segments: list[str] = []
    for segment in pattern.split("/"):
        if segment == "**":
            segments += data.draw(st.lists(anything, max_size=3))
        elif set(segment) == {"*"}:
            segments.append("a" + data.draw(anything))
        else:
            segments.append("".join(data.draw(anything) if c == "*" else c for c in segment))
    assert Pattern.parse(pattern).matches("/".join(segments) if segments else "a")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\x85", "control"),
        ("\ud800", "surrogate"),
        ("a\\b", "backslash"),
        ("/ws/../etc", "segment '..'"),
        ("..", "segment '..'"),
        ("./a", "segment '.'"),
        ("/ws/", "empty segment"),
        ("/", "empty segment"),
        ("//", "empty segment"),
        ("//a", "empty segment"),
        ("a//b", "empty segment"),
        ("https://", "empty segment"),
        ("https:///a", "empty segment"),
        ("a/https://b", "empty segment"),
        ("a" * (MAX_LENGTH + 1), "longer"),
        ("*" * 10_000, "longer"),
        ("/a" * MAX_SEGMENTS, "segments"),
        ("x" * 4000 + "/..", "segment '..'"),
    ],
)
def test_what_is_no_pattern(text: str, reason: str) -> None:
    """Text that nothing could match, or that is ambiguous, is refused with a short error."""
    with pytest.raises(ValueError, match=reason) as caught:
        Pattern.parse(text)
    assert len(str(caught.value)) < 200


@given(st.text(max_size=12))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    """Reading a pattern fails with a ValueError only, for any capability."""
    for capability in ("fs.read", "net.fetch", "tool.call", "x-vendor.acme.thing"):
        try:
            pattern = parse_grant(capability, text)
        except ValueError:
            continue
        assert parse_grant(capability, pattern.text) == pattern


def test_patterns_of_the_same_text_are_equal() -> None:
    """Patterns of the same text are equal."""
    assert Pattern.parse("/a/**") == Pattern.parse("/a/**")
    assert len({Pattern.parse("/a/**"), Pattern.parse("/a/**"), Pattern.parse("/b")}) == 2
    assert repr(Pattern.parse("/a/**")) == "Pattern('/a/**')"


@pytest.mark.parametrize(
    ("pattern", "form"),
    [
        ("*" * MAX_LENGTH, "a" * 16_000),
        ("*a" * 2000 + "b", "a" * 16_000),
        ("**/" * 40 + "b", "a/" * 255 + "a"),
        ("**/*a/" * 40 + "*b", "xa/" * 255 + "a"),
        ("**/" + "*a/" * 120 + "*b/**", "xa/" * 255 + "a"),
    ],
)
def test_no_pattern_takes_long(pattern: str, form: str) -> None:
    """The slowest patterns and forms take milliseconds: there is no backtracking."""
    parsed = Pattern.parse(pattern)
    start = time.thread_time()  # which stands still while the thread does
    parsed.matches(form)
    assert time.thread_time() - start < 1


@pytest.mark.parametrize("text", ["/a", "/a/**", "**", "**/a", "/*"])
def test_files_are_named_from_the_root(text: str) -> None:
    """A pattern that may match a path is absolute, or begins with **."""
    for capability in ("fs.read", "fs.write"):
        pattern = parse_grant(capability, text)
        assert pattern.text == text
        assert never_matches(capability, pattern) is None


@pytest.mark.parametrize("text", ["a", "a/**", "*", "*/a", "**a", "~/a", "C:/a", "***/a"])
def test_a_relative_path_grants_nothing(text: str) -> None:
    """A relative path is a pattern of files that matches no file, and is known to be one."""
    pattern = parse_grant("fs.read", text)
    paths = ["/", "/a", "/a/a", "/~/a", "/C:/a", "/x/y/z"]
    assert not any(pattern.matches(form) for path in paths for form in forms("fs.read", path))
    assert never_matches("fs.read", pattern) is not None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("HTTPS://API.Example.COM/**", "https://api.example.com/**"),
        ("https://h:443/a", "https://h/a"),
        ("http://h:443/a", "http://h:443/a"),
        ("https://h/", "https://h"),
        ("https://h/?q=*", "https://h/?q=*"),
        ("https://*.Example.com./**", "https://*.example.com/**"),
        ("https://*:8443/**", "https://*:8443/**"),
        ("https://h:*/**", "https://h:*/**"),
        ("https://**", "https://**"),
        ("https://*.bücher.example/**", "https://*.xn--bcher-kva.example/**"),
        ("https://h/%7euser/é/%2f", "https://h/~user/%C3%A9/%2F"),
        ("https://h/100%/*", "https://h/100%25/*"),
        ("https://h/a?next=/b/*", "https://h/a?next=%2Fb%2F*"),
        ("http://[0:0::1]:80/**", "http://[::1]/**"),
        ("s3://bucket/Key", "s3://bucket/Key"),
        ("**", "**"),
        ("**/api/**", "**/api/**"),
    ],
)
def test_urls_are_written_canonically(text: str, canonical: str) -> None:
    """A pattern of URLs gets the canonical spelling of URLs."""
    assert parse_grant("net.fetch", text).text == canonical


@pytest.mark.parametrize(
    "text",
    [
        "*://h/**",
        "http*://h/**",
        "*",
        "h/**",
        "/a",
        "//h/a",
        "https:h",
        "https:///a",
        "https://u@h/**",
        "https://*@h/**",
        "https://h:x/**",
        "https://h:0/**",
        "https://h:70000/**",
        "https://h/a/../b",
        "https://h/%2e%2e/b",
        "https://h/%2E/b",
        "https://h/a/",
        "https://h//a",
        "https://h/a#b",
        "https://h/a b",
        "https://h/%00",
        "https://h/%5cb",
        "https://h_\u00fc*/**",
        "http://127.1/**",
        "http://0x7f000001/**",
        "http://[::1/**",
        "http://[::*]/**",
        "https://a..b/**",
    ],
)
def test_what_grants_no_url(text: str) -> None:
    """Malformed patterns of URLs are refused."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        parse_grant("net.fetch", text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("capability", ["tool.call", "agent.delegate", "model.use", "x-vendor.a"])
def test_names_are_taken_as_they_are(capability: str) -> None:
    """Names are neither decoded nor lower-cased."""
    assert parse_grant(capability, "GPT-4o%41/*").text == "GPT-4o%41/*"
