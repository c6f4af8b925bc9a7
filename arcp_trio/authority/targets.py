"""Targets of operations, in the canonical forms that are compared with a lease's patterns."""

from __future__ import annotations

import re
from typing import Final

from arcp_trio.authority import urls
from arcp_trio.authority.patterns import FILES, URLS, check_characters
from arcp_trio.wire.errors import clip

MAX_LENGTH: Final = 16_384
"""Characters of a target, at most."""
MAX_SEGMENTS: Final = 256
"""Segments of a target, at most; see `patterns.MAX_SEGMENTS`."""

_ESCAPES: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_UNDECODED: Final = re.compile("[\udc80-\udcff]")


def forms(capability: str, target: str) -> tuple[str, ...]:
    """Return the canonical forms of a target; a lease has to allow each of them.

    The program that carries out the operation may decode percent-encoded characters, or not. So a
    path has two forms, as given and decoded once; a URL has two forms, one of them with a slash for
    each encoded slash. Mostly the two are equal.

    Raises:
        ValueError: the target names nothing.
    """
    check_characters(target, MAX_LENGTH)
    if target.count("/") >= MAX_SEGMENTS:
        raise ValueError(f"more than {MAX_SEGMENTS} segments")
    if capability in FILES:
        return _path_forms(target)
    if capability == URLS:
        url = urls.parse(target)
        return _distinct(url.resolved(), url.decoded())
    return (target,)


def _path_forms(path: str) -> tuple[str, ...]:
    if not path.startswith("/"):
        raise ValueError(f"{clip(repr(path))} is not an absolute path")
    decoded = _decoded(path)
    check_characters(decoded, MAX_LENGTH)
    return _distinct(_resolved(path), _resolved(decoded))


def _resolved(path: str) -> str:
    """Remove `.`, `..`, repeated and trailing slashes from a path, without a file system."""
    resolved: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del resolved[-1:]
        elif segment not in {"", "."}:
            resolved.append(segment)
    return "/" + "/".join(resolved)


def _decoded(text: str) -> str:
    """Decode once; octets that are not UTF-8 stay encoded, and their neighbours are decoded."""
    return _ESCAPES.sub(_decoded_run, text)


def _decoded_run(match: re.Match[str]) -> str:
    octets = bytes.fromhex(match.group().replace("%", ""))
    text = octets.decode(errors="surrogateescape")
    return _UNDECODED.sub(lambda each: f"%{ord(each.group()) - 0xDC00:02X}", text)


def _distinct(*forms: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(forms))
