"""What is bounded by time: messages, malformed frames of a connection, wrong tokens."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

import trio

BURST_SECONDS = 4.0
"""Who was quiet may send so many seconds' worth of messages at once."""

MALFORMED_SECONDS = 10.0
"""The span in which `malformed_frames` are counted."""

MINUTE_SECONDS = 60.0

MOST_ADDRESSES = 10_000
"""That wrong tokens are counted for; past it, who began longest ago is forgotten."""


class Pace:
    """A token bucket: messages may come faster than so many a second, but not for long."""

    def __init__(self, per_second: float) -> None:
        self._interval = 1 / per_second
        self._due = trio.current_time() - BURST_SECONDS

    def step(self) -> float:
        """One message has come; how long to wait before the next is read, 0 or less for not."""
        now = trio.current_time()
        self._due = max(self._due, now - BURST_SECONDS) + self._interval
        return self._due - now


class Malformed:
    """Counts a connection's malformed frames over a span of time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: list[float] = []

    def too_many(self) -> bool:
        """One more has come; whether that is more than so many in the span."""
        now = trio.current_time()
        self._times = [time for time in self._times if time >= now - MALFORMED_SECONDS]
        self._times.append(now)
        return len(self._times) > self._most


class WrongTokens:
    """Counts by address; a minute begins with the first one."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[float, int]] = {}
        """When the minute ends, and how many there were; who began first is first."""

    def count(self, address: str) -> int:
        """One more; how many there were in this minute."""
        now = trio.current_time()
        ends, before = self._counted.get(address, (now, 0))
        if ends <= now:
            self._counted.pop(address, None)  # begins anew, behind the others
            ends, before = now + MINUTE_SECONDS, 0
            if len(self._counted) >= MOST_ADDRESSES:
                del self._counted[next(iter(self._counted))]
        self._counted[address] = ends, before + 1
        return before + 1

    def forget(self) -> None:
        """Let go of the minutes that are over."""
        now = trio.current_time()
        for address, (ends, _) in list(self._counted.items()):
            if ends > now:
                break
            del self._counted[address]


def address_of(peer: str) -> str:
    """What wrong tokens are counted for: a peer's address, or the network of an IPv6 one.

    Whoever has one IPv6 address has 2**64. Peers without an address share one.
    """
    host = peer.rpartition(":")[0]
    if host.startswith("["):
        with suppress(ValueError):
            network = ipaddress.IPv6Network((host.strip("[]").partition("%")[0], 64), strict=False)
            return str(network)
    return host or peer
