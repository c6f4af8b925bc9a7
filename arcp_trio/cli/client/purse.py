"""What one job may spend and has left, in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from arcp_trio.cli.client.figures import money_left


class Purse:
    """The money of one job, by currency."""

    def __init__(self) -> None:
        self._granted: Mapping[str, Decimal] = {}
        self._left: dict[str, str] = {}

    def fill(self, granted: Mapping[str, Decimal], left: Mapping[str, Decimal]) -> None:
        """Note what the job may spend, and what is left of it."""
        self._granted = granted
        for currency, value in left.items():
            self.note_left(currency, value)

    def note_left(self, currency: str, left: Decimal) -> str:
        """Note what is left, and return it in words."""
        self._left[currency] = money_left(left, self._granted.get(currency), currency)
        return self._left[currency]

    def left(self) -> list[str]:
        """Return what is left in each currency."""
        return list(self._left.values())
