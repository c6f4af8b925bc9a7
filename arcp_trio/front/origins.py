"""Which web pages may connect, and under which names the runtime may be asked for.

A browser lets any page open a WebSocket to any address, even to one that only its user's machine
can reach, and names the page in `Origin` (RFC 6455 §10.2). That does not stop a page whose own
name has been pointed to this machine (DNS rebinding): there, `Host` is the name of that page.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

import attrs

from arcp_trio.addresses import HIGHEST_PORT, is_this_machine, parse_address

_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
_AUTHORITY: Final = re.compile(r"(\[[^][]*\]|[^][:]*)(?::([0-9]{0,5}))?", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*", re.ASCII)
_LONGEST_NAME: Final = 253

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@attrs.frozen
class Host:
    """A name or an address, in lower case and without brackets, and a port if it is given."""

    name: str
    port: int | None = None

    @property
    def address(self) -> _Address | None:
        """The IP address that the name is; None for a host name."""
        try:
            return parse_address(self.name)
        except ValueError:
            return None

    @property
    def is_loopback(self) -> bool:
        """Whether the name means the machine on which it is looked up."""
        return is_this_machine(self.name)


@attrs.frozen
class Origin:
    """The origin of a web page, normalised: two equal origins have one form."""

    scheme: str
    name: str
    port: int | None


def parse_host(text: str) -> Host | None:
    """Parse the value of a Host header; None if it is malformed (RFC 3986 §3.2)."""
    matched = _AUTHORITY.fullmatch(text)
    if matched is None:
        return None
    name, port = matched[1].lower(), int(matched[2]) if matched[2] else None
    if port is not None and port > HIGHEST_PORT:
        return None
    if name.startswith("["):
        return _ipv6(name[1:-1], port)
    name = name.removesuffix(".")
    good = len(name) <= _LONGEST_NAME and all(_NAME.fullmatch(part) for part in name.split("."))
    return Host(name, port) if good else None


def _ipv6(text: str, port: int | None) -> Host | None:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return None
    # The interface in an address means nothing beyond one machine.
    return None if address.scope_id else Host(str(address), port)


def parse_origin(text: str) -> Origin | None:
    """Parse the value of an Origin header; None for `null` or if malformed (RFC 6454 §7)."""
    scheme, separator, authority = text.lower().partition("://")
    host = parse_host(authority)
    if not separator or host is None or not _SCHEME.fullmatch(scheme):
        return None
    return Origin(scheme, host.name, host.port or _DEFAULT_PORTS.get(scheme))


class Origins:
    """The web pages that may connect, and the names under which the runtime may be asked for."""

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        """Allow these origins, and the host of each as a name of the runtime, such as a proxy's.

        Raises:
            ValueError: one of them is not an origin.
        """
        self._allowed: set[Origin] = set()
        self._null = False
        for text in allowed:
            origin = parse_origin(text)
            if origin is not None:
                self._allowed.add(origin)
            elif text == "null":
                self._null = True
            else:
                raise ValueError(f"{text!r} is not an origin, like https://app.example")
        self._names = {origin.name for origin in self._allowed}

    def admits_host(self, host: Host | None, *, loopback: bool) -> bool:
        """Return whether a client that asks for `host` means this runtime.

        The runtime knows its names on a `loopback` address only; elsewhere any name will do. A
        client that names no host at all is not a browser.
        """
        return host is None or not loopback or host.is_loopback or host.name in self._names

    def admits_origin(self, origin: str | None, host: Host | None, *, encrypted: bool) -> bool:
        """Return whether a request with this Origin header may connect.

        Without the header it does not come from a browser. A page may connect if its origin is
        allowed, or is the runtime's own, as some clients that are not browsers claim.
        """
        if origin is None:
            return True
        parsed = parse_origin(origin)
        if parsed is None:
            return self._null and origin == "null"
        return parsed in self._allowed or _is_here(parsed, host, encrypted=encrypted)


def _is_here(origin: Origin, host: Host | None, *, encrypted: bool) -> bool:
    if host is None:
        return False
    scheme = "https" if encrypted else "http"
    here = Origin(scheme, host.name, host.port or _DEFAULT_PORTS[scheme])
    # Anybody can point a name to this machine, but has no certificate for it.
    return origin == here and (encrypted or host.is_loopback or host.address is not None)
