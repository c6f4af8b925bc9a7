"""Canonical spelling of URLs (RFC 3986 §6.2): of targets, and of patterns, which may have `*`.

A canonical URL is `scheme://host[:port]` and segments; the root has no segments and no slash. A
query is part of the last segment: a slash in it is written %2F, so that it separates no segments.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

import attrs
import idna

from arcp_trio.wire.errors import clip

_DEFAULT_PORTS: Final = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}

_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?P<fragment>#.*)?",
    re.DOTALL,
)
_AUTHORITY: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]*|\*))?")
_MAX_HOST: Final = 254  # with the dot that may end it
_MAX_PORT: Final = 65_535
_LABEL: Final = re.compile(r"[a-z0-9_*-]{1,63}")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")  # as the last label: the host is an IPv4 address

_UNRESERVED: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
)
_PERCENT: Final = re.compile(r"%([0-9A-Fa-f]{2})?")
_UNSAFE: Final = re.compile(r"[^\x21-\x7e]|[\"<>^`{|}]")
_FORBIDDEN_ESCAPE: Final = re.compile(r"%(?:[01][0-9A-F]|7F|5C)")  # controls and the backslash


@attrs.frozen(kw_only=True)
class Url:
    """A URL in parts with canonical spelling, whose path is not resolved yet."""

    site: str
    path: str
    query: str

    def unresolved(self) -> str:
        """Return the URL with its path as it is."""
        return self._with(self.path)

    def resolved(self) -> str:
        """Return the URL with `.` and `..` resolved (RFC 3986 §5.2.4)."""
        return self._with(_resolved(self.path))

    def decoded(self) -> str:
        """Return the URL as a lenient server reads it: %2F is a slash, and many slashes are one."""
        path = re.sub("/{2,}", "/", self.path.replace("%2F", "/"))
        return self._with(_resolved(path))

    def _with(self, path: str) -> str:
        return self.site + ("" if path == "/" and not self.query else path) + self.query


def parse(text: str) -> Url:
    """Read the URL of a target; `ValueError` says why the text is not one."""
    url = _parse(text)
    if "*" in url.site:
        raise ValueError(f"the host of {clip(repr(text))} has a *")
    return url


def canonical_glob(text: str) -> str:
    """Return a pattern of URLs in canonical spelling; all but its scheme may have `*`."""
    if "#" in text:
        raise ValueError(f"{clip(repr(text))} has a fragment, which is never sent")
    return _parse(text).unresolved()


def _parse(text: str) -> Url:
    match = _URL.fullmatch(text)
    if match is None:
        raise ValueError(f"{clip(repr(text))} is not an absolute URL: scheme://host…")
    if any(character.isspace() for character in text):
        raise ValueError(f"{clip(repr(text))} has a space")
    scheme, query = match["scheme"].lower(), match["query"]
    return Url(
        site=f"{scheme}://{_authority(scheme, match['authority'])}",
        path=_path(match["path"]) or "/",
        query="" if query is None else "?" + _normalised(query).replace("/", "%2F"),
    )


def _resolved(path: str) -> str:
    """Remove `.` and `..` from the path of a URL, in which empty segments count."""
    resolved: list[str] = []
    segments = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            del resolved[-1:]
        elif segment != ".":
            resolved.append(segment)
    if segments[-1] in {".", ".."}:
        resolved.append("")  # the result is a directory
    return "/" + "/".join(resolved)


def _path(text: str) -> str:
    path = _normalised(text)
    if _FORBIDDEN_ESCAPE.search(path):
        raise ValueError(f"{clip(repr(text))} has an encoded control character or backslash")
    return path


def _normalised(text: str) -> str:
    """Decode unreserved characters, and encode unsafe ones, with digits in upper case."""
    text = _PERCENT.sub(_normalised_escape, text)
    return _UNSAFE.sub(lambda match: _encoded(match.group()), text)


def _normalised_escape(match: re.Match[str]) -> str:
    digits = match[1]
    if digits is None:
        return "%25"  # stands for itself
    code = int(digits, 16)
    return chr(code) if code in _UNRESERVED else f"%{digits.upper()}"


def _encoded(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode())


def _authority(scheme: str, text: str) -> str:
    if "@" in text:
        raise ValueError("has user information before its host")
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{clip(repr(text))} is not a host, or a host and a port")
    host, port = _host(match["host"]), _port(match["port"] or "")
    return host if port in {"", _DEFAULT_PORTS.get(scheme)} else f"{host}:{port}"


def _port(text: str) -> str:
    if text in {"", "*"}:
        return text
    port = text.lstrip("0")
    if len(port) > len(str(_MAX_PORT)) or not 0 < int(port or 0) <= _MAX_PORT:
        raise ValueError(f"{clip(text)} is not a port")
    return port


def _host(text: str) -> str:
    if text.startswith("["):
        return f"[{_ipv6(text[1:-1])}]"
    if len(text) > _MAX_HOST:
        raise ValueError(f"{clip(repr(text))} is too long for a host")
    given = text.split(".")
    host = ".".join(label if "*" in label else _ascii(label) for label in given).lower()
    labels = host.removesuffix(".").split(".")
    for label in labels:
        if _LABEL.fullmatch(label) is None:
            raise ValueError(f"{clip(repr(text))} is not the name of a host")
    if _NUMBER.fullmatch(labels[-1]) and "*" not in host:
        return _ipv4(".".join(labels))
    return ".".join(labels)


def _ipv6(text: str) -> str:
    if "%" in text:
        raise ValueError(f"{clip(repr(text))} has a zone, which is local to one machine")
    try:
        return ipaddress.IPv6Address(text).compressed
    except ValueError:
        raise ValueError(f"{clip(repr(text))} is not an IPv6 address") from None


def _ipv4(text: str) -> str:
    """Accept one spelling only: some programs also read 127.1, 0x7f.0.0.1 and 2130706433."""
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise ValueError(f"{clip(repr(text))} is not an IPv4 address of four decimals") from None


def _ascii(label: str) -> str:
    """Map a label (UTS 46) and encode it (RFC 5891); the result may be several labels.

    Python's resolver encodes by the older RFC 3490, in which ß is ss: such a label would
    be checked as one host and resolved as another, and is refused.
    """
    if label.isascii():
        return label
    try:
        encoded = idna.encode(label, uts46=True).decode()
    except UnicodeError as error:
        reason = clip(str(error))
        raise ValueError(f"{clip(repr(label))} cannot be a part of a host: {reason}") from None
    older = _older_ascii(label)
    if older is not None and older != encoded:
        raise ValueError(f"{clip(repr(label))} means {encoded} or {older}: write one of them")
    return encoded


def _older_ascii(label: str) -> str | None:
    """Return a label as RFC 3490 encodes it; None if that is not possible."""
    try:
        return label.encode("idna").decode().lower()
    except UnicodeError:
        return None
