"""What the programs of one job may reach, decided anew for each request."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import attrs
import trio

from arcp_trio.authority import urls
from arcp_trio.authority.approvals import ASK
from arcp_trio.authority.lease import Lease
from arcp_trio.authority.patterns import URLS, Pattern
from arcp_trio.authority.sites import loopback_ports, reaches, shares_site
from arcp_trio.authority.targets import forms
from arcp_trio.wire.errors import ArcpError, PermissionDenied

CONNECT_SECONDS: Final = 30.0
"""How long connecting to a server may take, with the lookup of its address."""

_METADATA: Final = (
    *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
    *("100.100.100.200", "192.0.0.192", "168.63.129.16"),
)
"""Where clouds tell a machine its secrets, beside the address that is link-local."""
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_ENCODED: Final = re.compile("%(2[5DEFdef]|3[0-9Bb]|[46][1-9A-Fa-f]|[57][0-9Aa]|5[CFcf]|7[Ee])")
_BACKSLASH: Final = re.compile(r"\\|%5[cC]")
_MOST_DECODED: Final = 8
"""How often a URL may be encoded."""
_PARAMETERS: Final = re.compile(r"(/\.\.?);[^/]*")


class Refused(Exception):  # noqa: N818 - says what has happened
    """A program may not reach this; the message says why."""


@attrs.frozen(kw_only=True)
class Reach:
    """What the programs of one job may reach."""

    lease: Lease
    authorize: Callable[[str], None]
    """Returns if the job may fetch a URL now, and raises an `ArcpError` if it may not."""
    added: Callable[[], Sequence[Pattern]]
    """Returns what the operator lets them reach beside that, and the job's credentials."""
    approved: Callable[[], Sequence[str]] = tuple
    """Returns the URLs that people have allowed for as long as the job runs."""
    refused: Callable[[str, str], Awaitable[None]] | None = None
    """Told of each URL that is refused to a program, and why."""

    @property
    def anything(self) -> bool:
        """Whether there is anything to reach, or may be if people allow it."""
        return bool(self._patterns())

    def ports(self) -> list[int]:
        """Return the ports of this machine that may be reached, at some URL."""
        return loopback_ports(self._patterns())

    def check(self, url: str) -> None:
        """Return if a URL may be fetched now, in each way that a server may read it.

        Raises:
            Refused: it may not.
        """
        self._check(url)
        for as_read in _read_leniently(urls.parse(url).unresolved()):
            self._check(as_read)

    def _check(self, url: str) -> None:
        try:
            found = forms(URLS, url)
        except ValueError as error:
            raise Refused(str(error)) from None
        if all(any(each.matches(form) for each in self.added()) for form in found):
            return
        try:
            self.authorize(url)
        except ArcpError as error:
            raise Refused(error.message) from None

    def check_site(self, url: str) -> None:
        """Return if something at the site of a URL may be fetched now.

        Raises:
            Refused: nothing there may be.
        """
        try:
            if reaches(self.added(), url):
                return
            covered = reaches(self._granted, url) or shares_site(url, self.approved())
        except ValueError as error:
            raise Refused(str(error)) from None
        try:
            self.authorize(url)
        except PermissionDenied as error:
            if not covered:  # otherwise the lease names what is further down
                raise Refused(error.message) from None
        except ArcpError as error:
            raise Refused(error.message) from None

    def names_host(self, url: str) -> bool:
        """Return whether the host of a URL is named, and not only matched by a `*`."""
        host, _ = host_and_port(url)
        patterns = (each.text for each in self._patterns())
        return any(_literal_host(each) == host for each in [*patterns, *self.approved()])

    @property
    def _granted(self) -> Sequence[Pattern]:
        return self.lease.grants.get(URLS, ())

    def _patterns(self) -> Sequence[Pattern]:
        asked = self.lease.grants.get(f"{ASK}{URLS}", ())
        return [*self._granted, *asked, *self.added()]


def _read_leniently(url: str) -> Iterator[str]:
    """Yield a URL as servers read it that decode a path again, or cut parameters off `..`.

    Raises:
        Refused: it is encoded too often.
    """
    path, mark, query = url.partition("?")
    for _ in range(_MOST_DECODED):
        as_read = _PARAMETERS.sub(r"\1", _BACKSLASH.sub("/", path)) + mark + query
        if as_read != url:
            yield as_read
        decoded = _ENCODED.sub(lambda match: chr(int(match[1], 16)), path)
        if decoded == path:
            return
        path = decoded
    raise Refused("its path is encoded too often")


def host_and_port(url: str) -> tuple[str, int]:
    """Return where the server of a URL is, as its canonical spelling says; HTTP or HTTPS.

    Raises:
        ValueError: this is not a URL.
    """
    scheme, _, place = urls.parse(url).site.partition("://")
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]"):
        host, port = place, "443" if scheme == "https" else "80"
    return host.strip("[]"), int(port)


def _literal_host(pattern: str) -> str | None:
    """Return the host of a pattern of URLs, or None if a part of it is left open."""
    scheme, empty, place, *_ = [*pattern.split("/"), "", ""]
    if not scheme.endswith(":") or empty:
        return None
    host = place if place.endswith("]") else place.rpartition(":")[0] or place
    return None if "*" in host else host.strip("[]")


async def connect(host: str, port: int, *, is_named: bool) -> trio.SocketStream:
    """Look an address up, and connect to it.

    This machine is reached only at an address, or as localhost, that is named. A name may lead to
    other machines only: its owner decides where it leads, and could name the services of this one.

    Args:
        host: a name or an address.
        port: where it listens.
        is_named: whether somebody has named the host itself, and not with a `*`.

    Raises:
        Refused: the host leads to this machine.
        OSError: there is no connection.
    """
    with trio.fail_after(CONNECT_SECONDS):
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
        only_elsewhere = not (is_named and (host == "localhost" or _is_address(host)))
        if only_elsewhere:
            found = [each for each in found if not _is_near(str(each[4][0]))]
            if not found:
                raise _leads_here(host)
        failure = OSError(f"{host} has no address")
        for family, kind, protocol, _, address in found:
            socket = trio.socket.socket(family, kind, protocol)
            try:
                await socket.connect(address)
                if only_elsewhere:
                    _check_is_elsewhere(socket, host)
            except OSError as error:
                failure = error
                socket.close()
            except BaseException:
                socket.close()
                raise
            else:
                return trio.SocketStream(socket)
    raise failure


def _check_is_elsewhere(connected: trio.socket.SocketType, host: str) -> None:
    """Raise if a socket is connected to this machine, also at an address in a network."""
    if connected.getsockname()[0] == connected.getpeername()[0]:
        raise _leads_here(host)


def _leads_here(host: str) -> Refused:
    return Refused(f"{host} leads to the machine that this runs on")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_near(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    inner = getattr(address, "ipv4_mapped", None) or address
    if address in _NAT64:
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    known = inner.is_loopback or inner.is_link_local or inner.is_unspecified
    return known or str(inner) in _METADATA
