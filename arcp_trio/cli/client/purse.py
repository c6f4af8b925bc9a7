"""What one job may spend, has spent and has left, in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from arcp_trio.cli.client.figures import amount, money_left
from arcp_trio.cli.text import safe_line

_COST: Final = "cost."
_NONE: Final = "of no currency"
_MOST: Final = 20
"""The currencies without a budget that are told of."""


class Purse:
    """The money of one job, by currency."""

    def __init__(self) -> None:
        self._granted: Mapping[str, Decimal] = {}
        self._left: dict[str, str] = {}
        self._unbounded: dict[str, Decimal] = {}
        """What a job with a budget has spent in other currencies."""

    def fill(self, granted: Mapping[str, Decimal], left: Mapping[str, Decimal]) -> None:
        """Note what the job may spend, and what is left of it."""
        self._granted = granted
        for currency, value in left.items():
            self.note_left(currency, value)

    def note_left(self, currency: str, left: Decimal) -> str:
        """Note what is left, and return it in words."""
        self._left[currency] = money_left(left, self._granted.get(currency), currency)
        return self._left[currency]

    def note_metric(self, name: str, currency: str, value: Decimal) -> None:
        """Note a metric, which may be a cost in a currency for which there is no budget."""
        if name.startswith(_COST) and self._granted and currency not in self._granted:
            known = self._unbounded
            if currency in known or len(known) < _MOST:
                known[currency] = known.get(currency, Decimal()) + value

    def left(self) -> list[str]:
        """Return what is left in each currency."""
        return list(self._left.values())

    def unbounded(self) -> list[str]:
        """Return what was spent beside the budget, which a budget in that currency would bound."""
        return [
            f"{amount(spent)} {safe_line(currency) or _NONE} spent, for which there is no budget"
            for currency, spent in self._unbounded.items()
        ]
