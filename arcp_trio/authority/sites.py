"""Sites: the part of a URL that is known before the rest of it is, `scheme://host[:port]`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from arcp_trio.authority import urls
from arcp_trio.authority.patterns import Pattern

_SITE_SEGMENTS: Final = 3  # https: and nothing and host


def reaches(patterns: Iterable[Pattern], url: str) -> bool:
    """Return whether a pattern of URLs can match something at the site of a URL.

    Raises:
        ValueError: this is not a URL.
    """
    site = urls.parse(url).site
    return any(_at_site(pattern).matches(site) for pattern in patterns)


def shares_site(url: str, others: Iterable[str]) -> bool:
    """Return whether a URL is at the same site as one of the others, which are URLs, too.

    Raises:
        ValueError: one of them is not a URL.
    """
    site = urls.parse(url).site
    return any(urls.parse(each).site == site for each in others)


def at_and_below(url: str) -> list[Pattern]:
    """Return the patterns of a URL and of all that is below it; none if this is not a URL."""
    try:
        known = urls.parse(url).unresolved().rstrip("/")
        return [Pattern.parse(known), Pattern.parse(f"{known}/**")]
    except ValueError:
        return []


def everything_at(pattern: Pattern) -> Pattern:
    """Return the pattern of all that is at the hosts that a pattern names, if it names no path."""
    is_site = pattern.text.count("/") == _SITE_SEGMENTS - 1 and "**" not in pattern.text
    return Pattern.parse(f"{pattern.text}/**") if is_site else pattern


def _at_site(pattern: Pattern) -> Pattern:
    """Return the pattern of the sites at which a pattern matches something."""
    segments = pattern.text.split("/")
    start = segments[:_SITE_SEGMENTS]
    if "**" in start:  # it may stand for the rest of the site
        start = start[: start.index("**") + 1]
    return Pattern.parse("/".join(start))


def loopback_ports(patterns: Iterable[Pattern]) -> list[int]:
    """Return the ports of this machine that patterns name, in URLs of plain HTTP."""
    ports: dict[int, None] = {}
    for pattern in patterns:
        scheme, _, host, *_ = [*pattern.text.split("/"), "", "", ""]
        name, _, port = host.partition(":")
        here = scheme == "http:" and name in {"127.0.0.1", "localhost"}
        if here and (port == "" or port.isdecimal()):
            ports[int(port or 80)] = None
    return list(ports)
