"""Timestamps on the wire: RFC 3339, written in UTC with milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SHAPE: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def rfc3339(unix_seconds: float) -> str:
    """Return `YYYY-MM-DDTHH:MM:SS.mmmZ`, rounded down to the millisecond."""
    return _whole_millisecond(int(unix_seconds * 1000))


@lru_cache(maxsize=64)  # a busy job emits a hundred events in one millisecond
def _whole_millisecond(unix_millis: int) -> str:
    seconds, millis = divmod(unix_millis, 1000)
    return f"{_whole_second(seconds)}.{millis:03d}Z"


@lru_cache(maxsize=64)  # a quiet job emits many events in one second
def _whole_second(unix_seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=unix_seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def parse_rfc3339(text: str) -> float:
    """Return the Unix seconds of a timestamp with `Z` or an offset; `ValueError` for other text."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 timestamp")
    whole, fraction, zone = match.groups()
    moment = datetime.fromisoformat(whole + ("+00:00" if zone == "Z" else zone))
    return (moment - _EPOCH).total_seconds() + float(fraction or 0)


def parse_utc(text: str) -> float:
    """Return the Unix seconds of a timestamp that must end in `Z` (§9.5); else `ValueError`."""
    if not text.endswith("Z"):
        raise ValueError("not a UTC timestamp ending in Z")
    return parse_rfc3339(text)
