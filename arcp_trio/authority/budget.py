"""Budgets (§9.6): exact counters of money, in a tree that mirrors who delegated to whom.

Every job has a node. Its spending counts against its own counters and every ancestor's, and what
it was granted is set aside in its ancestors until it ends: two children of one parent cannot
together be granted more than the parent has left (§9.4).

Amounts are decimals within bounds in which sums are exact; what is beyond the bounds is refused.
"""

# ruff: noqa: SLF001 - the nodes of a tree know each other

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import TypeAlias, TypeVar

from arcp_trio.wire.faults import plain

Number: TypeAlias = int | float | Decimal
_Bounded = TypeVar("_Bounded", int, Decimal)

WHOLE_DIGITS = 18  # so that a whole amount is still an integer of 64 bits on the wire
PLACES = 40  # an ordinary float has 17 digits; this keeps them all down to 1e-23

_LIMIT = 10**WHOLE_DIGITS
# Twice the digits of any operand: with the traps, a result is exact or an error, never rounded.
_CONTEXT = Context(prec=2 * (WHOLE_DIGITS + PLACES), traps=[Inexact, InvalidOperation])


def exact(value: object) -> Decimal:
    """Take a number for the decimal it is written as; `ValueError` for what is none, or too big."""
    number = plain(value)
    if isinstance(number, int) and not isinstance(number, bool):
        return Decimal(_within_limit(number))
    if isinstance(number, float):
        number = Decimal(repr(number))
    if not isinstance(number, Decimal):
        raise ValueError("not a number")  # noqa: TRY004 - an agent's value is wrong, not the code
    if not number.is_finite():
        raise ValueError("not a finite number")
    exponent = _within_limit(number).as_tuple().exponent
    if isinstance(exponent, int) and exponent < -PLACES:
        raise ValueError(f"more than {PLACES} decimal places")
    return number


def add(left: Decimal, right: Decimal) -> Decimal:
    """Add exactly; `ValueError` if the sum is out of bounds."""
    return _within_limit(_CONTEXT.add(left, right))


def _within_limit(number: _Bounded) -> _Bounded:
    if not -_LIMIT < number < _LIMIT:
        raise ValueError(f"an amount of more than {WHOLE_DIGITS} digits")
    return number


class Budget:
    """The counters of one job: what of each currency it has left. Without any, it is unbudgeted.

    A node is made when its job is, and closed when its job ends.
    """

    def __init__(self, amounts: Mapping[str, Decimal] | None, parent: Budget | None = None) -> None:
        self._remaining = {currency: exact(left) for currency, left in (amounts or {}).items()}
        self._parent = parent
        self._children: dict[Budget, None] = {}  # a set, in the order of delegation
        self._closed = False
        if parent is not None:
            parent._children[self] = None

    @property
    def remaining(self) -> dict[str, Decimal]:
        """What is left of each currency, by this node's own counters; below zero if overspent."""
        return dict(self._remaining)

    def charge(self, currency: str, value: Number) -> list[Budget]:
        """Take a cost off this node and its ancestors; the nodes that changed, innermost first.

        A cost may take a counter below zero: it has been incurred, whatever was left (§9.6).
        `ValueError`, and nothing has changed, for one that is negative or out of bounds.
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
        return [node for node, _ in lowered]

    def exhausted(self) -> str | None:
        """Name a currency that is used up here or in an ancestor; None if there is none."""
        for node in self._line():
            for currency, left in node._remaining.items():
                if left <= 0:
                    return currency
        return None

    def available(self) -> dict[str, Decimal] | None:
        """What a new child may be granted of each currency; None if nothing bounds it.

        In this node and in each ancestor it is what is left, less what is set aside there for
        others; the least of these. A currency that a budget does not name is not available in it.
        """
        innermost = next((node._remaining for node in self._line() if node._remaining), None)
        return None if innermost is None else {each: self._available(each) for each in innermost}

    def close(self) -> None:
        """End this node: what it did not spend is its ancestors' again.

        While children of it live, what they hold stays set aside.
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
        held = Decimal(0)  # by all that hangs off the line so far
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
        """What may yet be spent under this node before its counter stops it."""
        if self._closed or currency not in self._remaining:
            return self._held_below(currency)
        return max(Decimal(0), self._remaining[currency])
