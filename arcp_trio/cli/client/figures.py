"""Money and durations as people read them."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from arcp_trio.cli.text import safe_line

_MOST: Final = 10**15
"""From this amount on, its digits are not worth their room."""


def duration(seconds: float) -> str:
    """Return a duration as in 1:02:03, or as in 2:03 below an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def amount(value: Decimal) -> str:
    """Return an amount with two decimals, or with more if it has more."""
    if abs(value) >= _MOST:
        return f"{value:.3g}"
    whole, _, fraction = f"{value:.6f}".partition(".")
    return f"{whole}.{fraction.rstrip('0'):0<2}"


def money_left(left: Decimal, granted: Decimal | None, currency: str) -> str:
    """Return what is left, as in "0.95 of 2.00 USD left", and what was spent beyond it."""
    share = "" if granted is None else f" of {amount(granted)}"
    over = f", {amount(-left)} overspent" if left < 0 else ""
    return f"{amount(max(left, Decimal()))}{share} {safe_line(currency)} left{over}"
