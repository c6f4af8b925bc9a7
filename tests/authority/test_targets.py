"""Canonical forms of targets, and attempts to leave what a lease allows."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.authority.grants import parse_grant
from arcp_trio.authority.patterns import URLS
from arcp_trio.authority.targets import MAX_LENGTH, MAX_SEGMENTS, forms


def allowed(capability: str, pattern: str, target: str) -> bool:
    """Return whether a lease of one pattern allows an operation on a target."""
    try:
        named = forms(capability, target)
    except ValueError:
        return False
    return all(parse_grant(capability, pattern).matches(form) for form in named)


@pytest.mark.spec("9.2-1", "9.3-2")
@pytest.mark.parametrize(
    ("pattern", "target", "granted"),
    [
        ("/ws/**", "/ws", True),
        ("/ws/**", "/ws/", True),
        ("/ws/**", "/ws/./a//b/", True),
        ("/ws/**", "/ws/a/../b", True),
        ("/ws/**", "/ws/...", True),
        ("/ws/**", "/ws/100%", True),
        ("/ws/**", "/ws/%zz", True),
        ("/ws/**", "/WS/a", False),
        ("/ws/**", "/ws2/a", False),
        ("/ws/**", "/ws/../etc/passwd", False),
        ("/ws/**", "/ws/../ws2/a", False),
        ("/ws/**", "/../../ws/../a", False),
        ("/ws/**", "/ws/%2e%2e/etc", False),
        ("/ws/**", "/ws/%2E./etc", False),
        ("/ws/**", "/ws/..%2fetc", False),
        ("/ws/**", "/ws%2f..%2fetc", False),
        ("/ws/**", "/ws/%2e%2e%2fetc%ff", False),
        ("/ws/**", "/ws/%ff%2e%2e/../../etc", False),
        ("/ws/**", "/%77s/a", False),
        ("/ws/**", "/ws/..\\..\\etc", False),
        ("/ws/**", "/ws/..%5c..%5cetc", False),
        ("/ws/**", "/ws/a\0.txt", False),
        ("/ws/**", "/ws/a%00.txt", False),
        ("/ws/**", "/ws/a%0a", False),
        ("/ws/**", "/ws/\ud800", False),
        ("/ws/**", "ws/a", False),
        ("/ws/**", "", False),
        ("/ws/*", "/ws/", False),
        ("/ws/*", "/ws/a%2fb", False),
        ("/ws/*", "/ws/a/b", False),
        # decoded a second time it would be elsewhere; but each reading is within /ws
        ("/ws/**", "/ws/%252e%252e/etc", True),
        ("**", "/any/where", True),
        ("/**", "/", True),
        ("/*", "/", False),
    ],
)
def test_paths(pattern: str, target: str, *, granted: bool) -> None:
    """A path is judged by where it leads, and allowed only if all its readings are."""
    assert allowed("fs.read", pattern, target) is granted


@pytest.mark.spec("9.2-1", "9.3-2")
@pytest.mark.parametrize(
    ("pattern", "target", "granted"),
    [
        # one spelling
        ("https://h/**", "HTTPS://h/x", True),
        ("https://h/**", "https://H:443/x", True),
        ("https://h/**", "https://h.:0443/x", True),
        ("https://h/**", "https://h", True),
        ("https://h/**", "https://h/", True),
        ("https://h/**", "https://h/a/", True),
        ("https://h/**", "https://h:/a", True),
        ("https://h/**", "https://h?x=1", True),
        ("https://h", "https://h/", True),
        ("https://h/", "https://h", True),
        ("https://h/", "https://h/?q", False),
        ("https://h/*", "https://h/", False),
        ("https://h/*", "https://h/a/b", False),
        ("https://h/~u/*", "https://h/%7Eu/x", True),
        ("https://h/%7Eu/*", "https://h/~u/x", True),
        ("https://h/é", "https://h/%c3%a9", True),
        ("https://h/a%20b", "https://h/a%20b", True),
        ("https://bücher.example/**", "https://xn--bcher-kva.example/", True),
        ("https://xn--bcher-kva.example/**", "https://BÜCHER。example/", True),
        ("http://[::1]/**", "http://[0:0:0:0:0:0:0:1]:80/", True),
        ("http://127.0.0.1/**", "http://127.0.0.1/", True),
        # another host
        ("https://h/**", "https://h:444/x", False),
        ("https://h/**", "http://h/x", False),
        ("https://h/**", "https://h.evil/x", False),
        ("https://h/**", "https://evil/h/x", False),
        ("https://h/**", "https://h@evil/x", False),
        ("https://h/**", "https://evil@h/x", False),
        ("https://h/**", "https://evil\\@h/x", False),
        ("https://h/**", "https://h%2eevil/x", False),
        ("https://h/**", "https://evil#@h/x", False),
        ("https://h/**", "https://evil?@h/x", False),
        ("https://h/**", "https://h\t/x", False),
        ("https://h/**", "https://h /x", False),
        ("https://h/**", " https://h/x", False),
        ("https://*.example.com/**", "https://a.example.com/x", True),
        ("https://*.example.com/**", "https://a.b.example.com", True),
        ("https://*.example.com/**", "https://example.com/x", False),
        ("https://*.example.com/**", "https://evil.com/.example.com/x", False),
        ("https://*.example.com/**", "https://evil.com?.example.com/x", False),
        ("https://*.example.com/**", "https://evil.com#.example.com/x", False),
        ("https://*.example.com/**", "https://evil.com:1.example.com/x", False),
        ("https://*.example.com/**", "https://evil.com%2f.example.com/x", False),
        ("https://*.example.com/**", "https://evil.com\u2044.example.com/x", False),
        ("https://*.example.com/**", "https://evil.com\uff0f.example.com/x", False),
        ("https://*.example.com/**", "https://*.example.com/x", False),
        ("https://*.example.com/**", "https://.example.com/x", False),
        ("http://127.0.0.1/**", "http://127.1/", False),
        ("http://127.0.0.1/**", "http://2130706433/", False),
        ("http://*/**", "http://127.1/", False),
        ("http://*/**", "http://0x7f.1/", False),
        ("http://*/**", "http://0177.0.0.1/", False),
        ("http://*/**", "http://\uff11\uff12\uff17.1/", False),
        ("http://*/**", "http://[::1%25eth0]/", False),
        ("http://*/**", "http://[::g]/", False),
        ("http://*/**", "http://h:99999/", False),
        ("http://*/**", "http://h:-1/", False),
        ("http://*/**", "http://h:٣/", False),
        ("http://*/**", "http://h..", False),
        ("http://*/**", "http:///x", False),
        ("http://*/**", "http://h*/x", False),
        ("http://*/**", "http://h:*/x", False),
        ("http://*/**", "http://" + "a" * 64, False),
        ("http://*/**", "http://" + "a." * 200, False),
        ("**", "/x", False),
        ("**", "//h/x", False),
        ("**", "mailto:a", False),
        ("**", "javascript:alert(1)", False),
        ("**", "s3://bucket/key", True),
        # another path
        ("https://h/a/**", "https://h/a/../b", False),
        ("https://h/a/**", "https://h/a/./b/..", True),
        ("https://h/a/**", "https://h/a/%2e%2e/b", False),
        ("https://h/a/**", "https://h/a/.%2E/b", False),
        ("https://h/a/**", "https://h/a/..%2fb", False),
        ("https://h/a/**", "https://h/a/x%2f..%2f..%2fb", False),
        ("https://h/a/**", "https://h/a//../b", False),
        ("https://h/a/**", "https://h/a//../c/..//../b", False),
        ("https://h/a/**", "https://h/a%2f..%2fb", False),
        ("https://h/a/**", "https://h/a/..%5cb", False),
        ("https://h/a/**", "https://h/a/..\\b", False),
        ("https://h/a/**", "https://h/a/%00", False),
        ("https://h/a/**", "https://h/a2", False),
        ("https://h/a/**", "https://h/A/b", False),
        ("https://h/a/*", "https://h/a/x%2Fy", False),
        ("https://h/a/*", "https://h/a/x?y=/../../b", True),
        ("https://h/a/*", "https://h/a/x#/../../b", True),
        ("https://h/a", "https://h/a?x", False),
        ("https://h/a*", "https://h/a?x=/y", True),
        ("https://h/a?x=/*", "https://h/a?x=/y/z", True),
        ("https://h/a?x=/*", "https://h/a?x=%2fy%2Fz", True),
        ("https://h/a?x=/*", "https://h/a?y=/y", False),
        # decoded a second time it would be elsewhere; but each reading is within /a
        ("https://h/a/**", "https://h/a/%252e%252e/b", True),
    ],
)
def test_urls(pattern: str, target: str, *, granted: bool) -> None:
    """A URL is judged by where it leads; malformed URLs are refused."""
    assert allowed("net.fetch", pattern, target) is granted


@pytest.mark.spec("9.7-1")
@pytest.mark.parametrize("capability", ["tool.call", "agent.delegate", "model.use", "x-vendor.a"])
@pytest.mark.parametrize(
    ("pattern", "target", "granted"),
    [
        ("*", "a/b", False),
        ("search.*", "search.a.b", True),
        ("search.*", "Search.a", False),
        ("anthropic/*", "openai/gpt-4o", False),
        ("anthropic/claude-3-haiku-*", "anthropic/claude-3-haiku-20240307", True),
        ("a/*", "a/../b", False),
        ("a%2F*", "a%2Fb", True),
        ("a", "a\n", False),
        ("a", "", False),
    ],
)
def test_names(capability: str, pattern: str, target: str, *, granted: bool) -> None:
    """Names are split at slashes and never decoded."""
    assert allowed(capability, pattern, target) is granted


def test_an_encoded_slash_has_two_readings() -> None:
    """An encoded slash needs a lease for both readings, since a server may take it for a slash."""
    target = "https://h/projects/group%2fname/issues"
    assert forms("net.fetch", target) == (
        "https://h/projects/group%2Fname/issues",
        "https://h/projects/group/name/issues",
    )


def test_a_path_that_is_encoded_has_two_readings() -> None:
    """An encoded path needs a lease for both readings, since a tool may decode it."""
    assert forms("fs.write", "/ws/a%20b/") == ("/ws/a%20b", "/ws/a b")
    assert forms("fs.write", "/ws/a/../b") == ("/ws/b",)


@pytest.mark.parametrize("capability", ["fs.read", "net.fetch", "tool.call"])
@pytest.mark.parametrize(
    "target",
    ["", "/" + "a" * MAX_LENGTH, "/a" * MAX_SEGMENTS, "http://h" + "/a" * MAX_SEGMENTS, "\ud800"],
)
def test_what_is_endless_or_no_text_names_nothing(capability: str, target: str) -> None:
    """Targets that are too long, or not text, are refused with a short error."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        forms(capability, target)
    assert len(str(caught.value)) < 300
    str(caught.value).encode()


@given(st.text("./%2eEfF5cC0ws", max_size=24))
def test_no_path_leaves_where_it_is_allowed(tail: str) -> None:
    """No continuation of a path leads outside of what the lease allows."""
    try:
        named = forms("fs.read", f"/ws/{tail}")
    except ValueError:
        return
    for form in named:
        assert form.startswith("/")
        assert not {".", ".."} & set(form.split("/"))
        assert "" not in form.split("/")[1:] or form == "/"
    if allowed("fs.read", "/ws/**", f"/ws/{tail}"):
        assert all(form == "/ws" or form.startswith("/ws/") for form in named)


@given(st.text("./%2eEfF5cC0?#:@hé*\\", max_size=24))
def test_canonical_urls_are_canonical(tail: str) -> None:
    """The first form of a URL is canonical, without segments that lead upwards."""
    try:
        first, *others = forms("net.fetch", f"https://h{tail}")
        assert forms("net.fetch", first) == (first, *others)
    except ValueError:
        return
    assert not {".", ".."} & {part for form in (first, *others) for part in form.split("/")}


@given(st.text(max_size=20), st.sampled_from(["fs.read", "net.fetch", "model.use"]))
def test_any_target_has_forms_or_is_refused(target: str, capability: str) -> None:
    """Finding the forms fails with a ValueError only."""
    for text in (target, f"/{target}", f"https://{target}", f"https://h/{target}"):
        try:
            named = forms(capability, text)
        except ValueError:
            continue
        assert named
        assert all(named)


@pytest.mark.parametrize("host", ["straße.example", "βόλος.example", "a.faß.de", "ẞ.example"])
def test_a_host_that_python_resolves_as_another_is_refused(host: str) -> None:
    """A name that two standards encode differently is refused, in targets and in patterns."""
    for read in (partial(forms, URLS), partial(parse_grant, URLS)):
        with pytest.raises(ValueError, match=r"means xn--\S+ or \S+: write one of them"):
            read(f"https://{host}/a")


def test_a_host_means_what_python_resolves() -> None:
    """A name in other letters has the form in which Python looks it up."""
    for host in ("bücher.example", "σοφία.example", "日本.example", "EXAMPLE。com"):
        (form,) = forms(URLS, f"https://{host}/a")
        assert form == f"https://{host.encode('idna').decode().lower()}/a"
