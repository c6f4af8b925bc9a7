"""Budgets (§9.6): exact counters of money, in a tree that mirrors who delegated to whom.

Every job has a node. Its spending counts against its own counters and those of all its ancestors,
and its grant is set aside in its ancestors until it ends: two children of one parent cannot
together be granted more than the parent has left (§9.4).

Amounts are decimals within bounds in which sums are exact; amounts beyond the bounds are refused.
"""

# ruff: noqa: SLF001 - the nodes of a tree know each other

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Final, TypeVar

from arcp_trio.wire.errors import clip
from arcp_trio.wire.event_bodies import Number
from arcp_trio.wire.faults import plain

_Bounded = TypeVar("_Bounded", int, Decimal)

CURRENCY: Final = r"[A-Za-z][A-Za-z0-9_-]{0,31}"
"""The pattern of a currency's name."""
MOST_CURRENCIES: Final = 32
"""Currencies that spending without a budget is counted in, at most: an agent may name any."""

WHOLE_DIGITS: Final = 18
"""Digits before the decimal point, at most: a whole amount on the wire is within 64 bits."""
PLACES: Final = 40
"""Digits after the decimal point, at most: all 17 digits of a float as small as 1e-23."""

_FLOAT_DIGITS: Final = 15
_NOISE: Final = Decimal("1e-12")
_LIMIT: Final = 10**WHOLE_DIGITS
# Twice the digits of any operand: with the traps, a result is exact or an error, never rounded.
_CONTEXT: Final = Context(prec=2 * (WHOLE_DIGITS + PLACES), traps=[Inexact, InvalidOperation])


def case_problem(currency: str) -> str | None:
    """Say what is wrong with a currency's capitals; None if nothing is.

    A budget in `usd` bounds no cost in `USD`. Three letters are a code of ISO 4217; other units,
    such as `credits`, are the deployment's own.
    """
    if re.fullmatch("[A-Za-z]{3}", currency) and not currency.isupper():
        return f"did you mean {currency.upper()}? codes of three letters are written in capitals"
    return None


def exact(value: object) -> Decimal:
    """Return a number as an exact decimal; `ValueError` if it is not a number, or too large."""
    number = plain(value)
    if isinstance(number, int) and not isinstance(number, bool):
        return Decimal(_within_limit(number))
    if isinstance(number, float):
        number = Decimal(repr(number))
    if not isinstance(number, Decimal):
        raise ValueError("not a number")  # noqa: TRY004 - the value of an agent, not a type of ours
    if not number.is_finite():
        raise ValueError("not a finite number")
    exponent = _within_limit(number).as_tuple().exponent
    if isinstance(exponent, int) and exponent < -PLACES:
        raise ValueError(f"more than {PLACES} decimal places")
    return number


def without_noise(amount: Decimal) -> Decimal:
    """Return the amount that is meant by one that was calculated with floats.

    1,200 tokens at 1e-05 are 0.012000000000000002: a float is good for 15 digits. What that changes
    is less than the smallest amount of a lease.
    """
    if not amount.is_finite():
        return amount
    meant = Decimal(f"{amount:.{_FLOAT_DIGITS}g}")
    if meant == amount or abs(meant - amount) >= _NOISE:
        return amount
    return Decimal(f"{meant.normalize():f}")


def add(left: Decimal, right: Decimal) -> Decimal:
    """Return the exact sum; `ValueError` if it is out of bounds."""
    return _within_limit(_CONTEXT.add(left, right))


def _within_limit(number: _Bounded) -> _Bounded:
    if not -_LIMIT < number < _LIMIT:
        raise ValueError(f"an amount of more than {WHOLE_DIGITS} digits")
    return number


class Budget:
    """The counters of one job: how much of each currency is left. Without any, nothing is bounded.

    A node is made together with its job, and closed when the job ends.
    """

    def __init__(self, amounts: Mapping[str, Decimal] | None, parent: Budget | None = None) -> None:
        self._remaining = {currency: exact(left) for currency, left in (amounts or {}).items()}
        self._spent = dict.fromkeys(self._remaining, Decimal(0))
        self._parent = parent
        self._children: dict[Budget, None] = {}  # a set, in the order of delegation
        self._closed = False
        if parent is not None:
            parent._children[self] = None

    @property
    def remaining(self) -> dict[str, Decimal]:
        """What is left of each currency by this node's own counters; below zero if overspent."""
        return dict(self._remaining)

    @property
    def bounds(self) -> Mapping[str, Decimal]:
        """What is left by the nearest counters, this node's or an ancestor's; empty without any."""
        named = (node._remaining for node in self._line() if node._remaining)
        return next(named, self._remaining)

    @property
    def spent(self) -> dict[str, Decimal]:
        """What this node and those below it have spent, even in currencies that no budget names."""
        return dict(self._spent)

    @property
    def spent_anything(self) -> bool:
        """Whether this node or one below it has spent anything."""
        return any(self._spent.values())

    def restore(self, spent: Mapping[str, Decimal]) -> None:
        """Take off this node what it and those below it had spent before a restart."""
        for currency, amount in spent.items():
            self._spent[currency] = amount
            if currency in self._remaining:
                self._remaining[currency] = _CONTEXT.subtract(self._remaining[currency], amount)

    def charge(self, currency: str, value: Number) -> list[Budget]:
        """Take a cost off this node and its ancestors; return the changed nodes, innermost first.

        A cost may take a counter below zero: it has been incurred already (§9.6).

        Raises:
            ValueError: the cost is negative or out of bounds; nothing has changed.
        """
        cost = exact(value)
        if cost < 0:
            raise ValueError("a cost that is negative")
        if not cost:
            return []
        lowered = [
            (node, _within_limit(_CONTEXT.subtract(node._remaining[currency], cost)))
            for node in self._line()
            if currency in node._remaining
        ]
        for node, left in lowered:
            node._remaining[currency] = left
        for node in self._line():
            node._count(currency, cost)
        return [node for node, _ in lowered]

    def _count(self, currency: str, cost: Decimal) -> None:
        if currency in self._spent:
            self._spent[currency] = _CONTEXT.add(self._spent[currency], cost)
        elif len(self._spent) < MOST_CURRENCIES and re.fullmatch(CURRENCY, currency):
            self._spent[currency] = cost

    def objection(self, currency: str | None) -> str | None:
        """Say why nothing may be spent in a currency; None if something may.

        A budget allows no other currencies than it names. One that is used up allows nothing.
        """
        named = self.bounds
        if not named:
            return None
        known = clip(", ".join(named))
        if currency is None:
            return f"a cost without a unit, and the budget is in {known}: give the metric its unit"
        if currency not in named:
            unit, helps = clip(repr(currency)), "the job needs one in that unit, too"
            if currency.upper() in named:
                helps = f"did you mean {currency.upper()}?"
            return f"a cost in {unit}, and the budget is in {known}: {helps}"
        used_up = any(node._remaining.get(currency, 1) <= 0 for node in self._line())
        return f"{currency} budget exhausted" if used_up else None

    def exhausted(self) -> str | None:
        """Return a currency that is used up here or in an ancestor, or None."""
        for node in self._line():
            for currency, left in node._remaining.items():
                if left <= 0:
                    return currency
        return None

    def available(self) -> dict[str, Decimal] | None:
        """Return what a new child may be granted of each currency; None if nothing bounds it.

        It is the least, over this node and its ancestors, of what is left less what is set aside
        for other children. A currency that a budget does not name is not available in it.
        """
        innermost = next((node._remaining for node in self._line() if node._remaining), None)
        return None if innermost is None else {each: self._available(each) for each in innermost}

    def close(self) -> None:
        """End this node: what it did not spend is its ancestors' again.

        What its children hold stays set aside while they live.
        """
        self._closed = True
        node = self
        while node._closed and not node._children and node._parent is not None:
            node._parent._children.pop(node, None)
            node = node._parent

    def _line(self) -> Iterator[Budget]:
        node: Budget | None = self
        while node is not None:
            yield node
            node = node._parent

    def _available(self, currency: str) -> Decimal:
        bounds: list[Decimal] = []
        held = Decimal(0)  # by all nodes beside and below the line so far
        branch: Budget | None = None
        for node in self._line():
            held = _CONTEXT.add(held, node._held_below(currency, but=branch))
            if currency in node._remaining:
                bounds.append(_CONTEXT.subtract(node._remaining[currency], held))
            branch = node
        return min(bounds)

    def _held_below(self, currency: str, but: Budget | None = None) -> Decimal:
        held = Decimal(0)
        for child in self._children:
            if child is not but:
                held = _CONTEXT.add(held, child._held(currency))
        return held

    def _held(self, currency: str) -> Decimal:
        """Return what may still be spent below this node before a counter stops it."""
        if self._closed or currency not in self._remaining:
            return self._held_below(currency)
        return max(Decimal(0), self._remaining[currency])
