"""Budgets of any tree of jobs, against a model (§9.6, §10)."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from arcp_trio.authority.budget import Budget

# --- any tree --------------------------------------------------------------------------------

CURRENCIES = ("USD", "credits")
amounts = st.decimals(min_value=0, max_value=100, places=2)
currencies = st.sampled_from(CURRENCIES)


@attrs.define(eq=False)
class Node:
    """The oracle's record of a job: its grant, and its own spending."""

    budget: Budget
    parent: Node | None
    granted: dict[str, Fraction]
    spent: dict[str, Fraction] = attrs.field(factory=lambda: dict.fromkeys(CURRENCIES, Fraction()))
    open: bool = True

    def line(self) -> list[Node]:
        """Return the node and its ancestors."""
        return [self, *(self.parent.line() if self.parent else ())]


class Tree(RuleBasedStateMachine):
    """A tree of jobs that grant, and spend, no more than is available to them."""

    roots = Bundle("roots")
    children = Bundle("children")
    nodes = roots | children

    def __init__(self) -> None:
        super().__init__()
        self.all: list[Node] = []

    def below(self, node: Node) -> list[Node]:
        """Return the node and its descendants."""
        return [other for other in self.all if node in other.line()]

    def left(self, node: Node, currency: str) -> Fraction:
        """Return the grant less all that was spent at and below the node."""
        return node.granted[currency] - sum(below.spent[currency] for below in self.below(node))

    def held(self, holder: Node, currency: str, line: list[Node]) -> Fraction:
        """Return the sum of the nearest open counters below a job, without those of one branch."""
        counted = [
            node
            for node in self.below(holder)
            if node not in line and node.open and currency in node.granted
        ]
        return sum(
            (
                max(Fraction(), self.left(node, currency))
                for node in counted
                if not any(above in counted for above in node.line()[1:])
            ),
            Fraction(),
        )

    def available(self, node: Node) -> dict[str, Fraction] | None:
        """Return what a new child may be granted of a currency."""
        line = node.line()
        bounds = [holder for holder in line if holder.granted]
        if not bounds:
            return None
        return {
            currency: min(
                self.left(holder, currency) - self.held(holder, currency, line) for holder in bounds
            )
            for currency in CURRENCIES
            if all(currency in holder.granted for holder in bounds)
        }

    def add(self, parent: Node | None, grant: dict[str, Decimal]) -> Node:
        """Make a job."""
        budget = Budget(grant or None, parent.budget if parent else None)
        node = Node(budget, parent, {key: Fraction(value) for key, value in grant.items()})
        self.all.append(node)
        return node

    @initialize(target=roots, grant=st.dictionaries(currencies, amounts))
    def start(self, grant: dict[str, Decimal]) -> Node:
        """Submit a job."""
        return self.add(None, grant)

    @rule(target=children, parent=nodes, grant=st.dictionaries(currencies, amounts))
    def delegate(self, parent: Node, grant: dict[str, Decimal]) -> Any:
        """Delegate the amount asked, as far as it is available."""
        if not all(node.open for node in parent.line()):
            return multiple()
        available = parent.budget.available()
        if available is not None:
            grant = {
                currency: min(asked, max(available[currency], Decimal(0)))
                for currency, asked in grant.items()
                if currency in available
            }
        return self.add(parent, grant)

    @rule(node=nodes, currency=currencies, value=amounts)
    def spend(self, node: Node, currency: str, value: Decimal) -> None:
        """Spend what is available and not set aside for children."""
        available = node.budget.available()
        if available is not None:
            value = min(value, max(available.get(currency, Decimal(0)), Decimal(0)))
        self.charge(node, currency, value)

    def charge(self, node: Node, currency: str, value: Decimal) -> None:
        """Spend, and compare the changed nodes with those that have the counter."""
        if not all(above.open for above in node.line()):
            return
        changed = node.budget.charge(currency, value)
        expected = [above.budget for above in node.line() if currency in above.granted]
        assert changed == (expected if value else [])
        node.spent[currency] += Fraction(value)

    @rule(node=consumes(children))
    def close(self, node: Node) -> None:
        """End a job, which may have children."""
        node.budget.close()
        node.open = False

    @invariant()
    def counters_are_what_was_granted_less_what_was_spent(self) -> None:
        """Each counter is its grant less what was spent at and below its node."""
        for node in self.all:
            assert {
                currency: Fraction(left) for currency, left in node.budget.remaining.items()
            } == {currency: self.left(node, currency) for currency in node.granted}

    @invariant()
    def what_is_available_is_what_nobody_holds(self) -> None:
        """Tree and oracle agree on what is available, for each node that could delegate."""
        for node in self.all:
            if all(above.open for above in node.line()):
                available = node.budget.available()
                assert self.available(node) == (
                    None
                    if available is None
                    else {key: Fraction(value) for key, value in available.items()}
                )

    @invariant()
    def a_line_is_exhausted_by_any_of_its_counters(self) -> None:
        """A line is exhausted if a counter from the job up is at or below zero."""
        for node in self.all:
            used_up = {
                currency
                for above in node.line()
                for currency in above.granted
                if self.left(above, currency) <= 0
            }
            exhausted = node.budget.exhausted()
            assert exhausted in used_up if used_up else exhausted is None

    @invariant()
    def who_keeps_within_bounds_overdraws_nobody(self) -> None:
        """Children together never spend more than their parent was granted."""
        for node in self.all:
            assert all(left >= 0 for left in node.budget.remaining.values())


class OverspentTree(Tree):
    """A tree with jobs that also spend more than they have."""

    @rule(node=Tree.nodes, currency=currencies, value=amounts)
    def overspend(self, node: Node, currency: str, value: Decimal) -> None:
        """Spend without asking."""
        self.charge(node, currency, value)

    def who_keeps_within_bounds_overdraws_nobody(self) -> None:
        """Overspending is allowed here, so there is nothing to check."""


TestTree = Tree.TestCase
TestTree.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestOverspentTree = OverspentTree.TestCase
TestOverspentTree.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
