"""What is true of network addresses in every part."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

HIGHEST_PORT: Final = 65_535

parse_address = lru_cache(maxsize=1_024)(ipaddress.ip_address)
"""Read an address, or raise ValueError; the same few come again and again."""


def is_loopback(address: str) -> bool:
    """Whether a peer at this address is on this machine, so that nothing leaves it."""
    parsed = parse_address(address)
    return (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def is_this_machine(host: str) -> bool:
    """Whether a name or an address means the machine it is used on, whoever answers for names."""
    try:
        return host == "localhost" or is_loopback(host)
    except ValueError:
        return False
