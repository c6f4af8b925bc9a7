"""What a session has cost, of which agents tell the sum again and again."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from arcp_trio.authority.budget import MOST_CURRENCIES, add, exact


class SessionCosts:
    """The highest sum that a session has told of, by currency."""

    def __init__(self, before: Mapping[str, Decimal] | None = None) -> None:
        """Begin with what the session has cost before this job."""
        self.known: Final = dict(before or {})

    def increase(self, amount: Decimal, currency: str) -> Decimal:
        """Take a sum, and return what it is more than the highest before.

        Raises:
            ValueError: the sum cannot be counted exactly, or there are too many currencies.
        """
        before = self.known.get(currency, Decimal(0))
        more = add(exact(amount), -before)
        if more <= 0:
            return Decimal(0)
        if len(self.known) >= MOST_CURRENCIES and currency not in self.known:
            raise ValueError("too many currencies")
        self.known[currency] = amount
        return more
