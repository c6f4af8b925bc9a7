"""How addresses are written and what they mean, for every part of the project."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote

HIGHEST_PORT: Final = 65_535

UNIX_PREFIX: Final = "unix:"
"""The beginning of an address that is the path of a Unix socket."""
WEBSOCKET_PATH: Final = "/arcp"
"""The path of the WebSocket in a runtime's URL."""

_BETWEEN: Final = re.compile(r"\s*,\s*(?=(?:,\s*)*(?:[A-Za-z]+:|$))")
"""What stands between addresses; a comma may also be part of one."""
_PAGES: Final = {"ws://": "http://", "wss://": "https://"}


def addresses_in(text: str) -> list[str]:
    """Return the addresses in a list with commas, most often one; some may be empty."""
    return _BETWEEN.split(text)


def page_url(url: str) -> str | None:
    """Return the address of the console of the runtime at `url`; None if it cannot have one."""
    for scheme, of_pages in _PAGES.items():
        if url.startswith(scheme):
            return of_pages + url.removeprefix(scheme).removesuffix(WEBSOCKET_PATH) + "/"
    return None


def signed_in(page: str, secret: str, name: str = "token") -> str:
    """Return the link that opens the console with a token, or with a one-time code.

    No server is sent what is after `#`.
    """
    return f"{page}#{name}={quote(secret, safe='')}"


parse_address = lru_cache(maxsize=1_024)(ipaddress.ip_address)
"""Return the IP address written as a string, or raise ValueError; the same few recur, so cached."""


def is_loopback(address: str) -> bool:
    """Return whether `address` is a loopback address, also one mapped into IPv6."""
    parsed = parse_address(address)
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def is_this_machine(host: str) -> bool:
    """Return whether `host` means this machine, whatever a name server says (RFC 6761 §6.3)."""
    try:
        return host == "localhost" or is_loopback(host)
    except ValueError:
        return False
