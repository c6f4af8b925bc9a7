"""Budgets: exact counters, spending up the tree, and what is set aside for children."""

from __future__ import annotations

import json
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
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

from arcp_trio.authority.budget import PLACES, WHOLE_DIGITS, Budget, exact
from arcp_trio.wire.json import dumps


def usd(amount: str | int, parent: Budget | None = None) -> Budget:
    """Return a budget in dollars."""
    return Budget({"USD": Decimal(amount)}, parent)


def left(budget: Budget) -> str:
    """Return what is left of the dollars, as it is written."""
    return f"{budget.remaining['USD']:f}"


# --- one job ---------------------------------------------------------------------------------


@pytest.mark.spec("9.6-2", "9.6-4")
def test_a_cost_is_taken_off_the_counter_of_its_currency() -> None:
    """Currencies are counted apart, each from its budgeted value."""
    budget = Budget({"USD": Decimal("1.00"), "credits": Decimal(1000)})
    assert budget.charge("USD", 0.4) == [budget]
    assert budget.remaining == {"USD": Decimal("0.60"), "credits": Decimal(1000)}


def test_sums_do_not_drift() -> None:
    """Ten times 0.1 as a float is exactly one dollar, and 0.1 and 0.2 are 0.3."""
    budget = usd("1.00")
    for _ in range(10):
        budget.charge("USD", 0.1)
    assert budget.remaining["USD"] == 0
    assert budget.exhausted() == "USD"
    other = usd("0.3")
    other.charge("USD", 0.1)
    other.charge("USD", 0.2)
    assert left(other) == "0.0"


def test_a_hundred_cents() -> None:
    """However many charges make it up, a dollar is a dollar."""
    budget = usd("1.00")
    for _ in range(100):
        assert budget.exhausted() is None
        budget.charge("USD", 0.01)
    assert left(budget) == "0.00"


@pytest.mark.spec("9.6-4", "9.6-7")
def test_overspending_takes_the_counter_below_zero() -> None:
    """A cost beyond what is left has been incurred all the same."""
    budget = usd(1)
    assert budget.charge("USD", 5.0) == [budget]
    assert left(budget) == "-4.0"
    assert budget.exhausted() == "USD"


@pytest.mark.spec("9.6-5")
@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.01,
        Decimal("-0.01"),
        float("nan"),
        float("inf"),
        float("-inf"),
        Decimal("NaN"),
        Decimal("sNaN"),
        Decimal("Infinity"),
        "0.1",
        True,
        None,
        [1],
        10**WHOLE_DIGITS,
        10**400,
        1e300,
        5e-324,
        Decimal("1e999999"),
        Decimal("1e-999999"),
        Decimal("0." + "1" * (PLACES + 1)),
    ],
)
def test_what_is_no_cost_changes_nothing(value: Any) -> None:
    """A cost that is negative, not a number or out of bounds is refused, in the whole line."""
    parent = usd(2)
    budget = usd(1, parent)
    with pytest.raises(ValueError, match=r".+"):
        budget.charge("USD", value)
    assert (left(budget), left(parent)) == ("1", "2")


@pytest.mark.parametrize("value", [0, 0.0, -0.0, Decimal("0.00")])
def test_a_cost_of_nothing_changes_nothing(value: float | Decimal) -> None:
    """There is nothing to report after it."""
    assert usd(1).charge("USD", value) == []


def test_a_currency_without_a_budget() -> None:
    """Its cost is nobody's, and the counters there are do not change; case tells them apart."""
    budget = usd(1)
    assert budget.charge("EUR", 1) == []
    assert budget.charge("usd", 1) == []
    assert left(budget) == "1"


@pytest.mark.spec("9.6-7")
def test_a_budget_of_zero_is_exhausted_from_the_start() -> None:
    """Nothing has been spent, and nothing may be."""
    assert usd("0.00").exhausted() == "USD"


def test_one_exhausted_currency_is_enough() -> None:
    """Any counter at zero exhausts the budget, whatever the others have."""
    budget = Budget({"USD": Decimal(5), "credits": Decimal(1)})
    budget.charge("credits", 1)
    assert budget.exhausted() == "credits"


def test_a_counter_stays_writable_however_much_is_overspent() -> None:
    """The charge that would take a counter out of bounds is refused, and changes no counter."""
    parent = usd(10**WHOLE_DIGITS - 1)
    budget = usd(0, parent)
    most = 10**WHOLE_DIGITS - 1
    budget.charge("USD", most)
    with pytest.raises(ValueError, match="more than 18 digits"):
        budget.charge("USD", 1)
    assert left(parent) == "0"
    assert json.loads(dumps(budget.remaining)) == {"USD": -most}


def test_what_is_left_is_a_copy() -> None:
    """Changing what one was told changes no counter."""
    budget = usd(1)
    budget.remaining["USD"] = Decimal(99)
    assert left(budget) == "1"


class Cents(IntEnum):
    """Numbers with names."""

    TEN = 10


def test_a_number_of_another_class_is_the_number_it_is() -> None:
    """Subclasses of numbers, whose `repr` is not a number, count as the numbers they are."""

    class Dollars(float):
        def __repr__(self) -> str:
            return f"${float(self)}"

    assert exact(Dollars(0.1)) == Decimal("0.1")
    assert exact(Cents.TEN) == 10


@given(st.floats(min_value=1e-23, max_value=1e17))
def test_ordinary_floats_are_taken_as_they_are_written(value: float) -> None:
    """No digit that the float is written with is lost, nor any added."""
    assert exact(value) == Decimal(repr(value))


# --- parents and children --------------------------------------------------------------------


def test_spending_counts_against_every_ancestor() -> None:
    """A charge names the nodes that it changed, the innermost first."""
    root = Budget({"USD": Decimal(5), "EUR": Decimal(5)})
    middle = Budget({"EUR": Decimal(2)}, root)
    leaf = usd(2, middle)
    assert leaf.charge("USD", 1) == [leaf, root]
    assert leaf.charge("EUR", 1) == [middle, root]
    assert root.remaining == {"USD": Decimal(4), "EUR": Decimal(4)}
    assert middle.remaining == {"EUR": Decimal(1)}


def test_a_child_without_a_budget_spends_its_parents() -> None:
    """There is no operation without a counter below a budgeted job."""
    root = usd(1)
    child = Budget(None, root)
    assert child.remaining == {}
    assert child.charge("USD", 1) == [root]
    assert child.exhausted() == "USD"
    assert child.available() == {"USD": Decimal(0)}


def test_an_exhausted_ancestor_exhausts() -> None:
    """A child with money left cannot spend what its parent no longer has."""
    root = usd(5)
    child = usd(5, root)
    root.charge("USD", 5)
    assert left(child) == "5"
    assert child.exhausted() == "USD"


def test_nothing_bounds_the_unbudgeted() -> None:
    """Where nobody has a budget, a child may be given any."""
    root = Budget(None)
    assert root.available() is None
    assert Budget(None, root).available() is None
    assert root.exhausted() is None
    child = usd(7, root)
    assert root.available() is None
    assert child.available() == {"USD": Decimal(7)}


@pytest.mark.spec("9.4-3", "9.4-4")
def test_what_is_spent_cannot_be_granted() -> None:
    """Of 5.00 with 3.00 spent there are 2.00 for a child."""
    budget = usd("5.00")
    budget.charge("USD", 3)
    assert budget.available() == {"USD": Decimal(2)}


@pytest.mark.spec("9.4-3")
def test_two_children_together_get_no_more_than_there_is() -> None:
    """What one child was granted is not there for another until the first has ended."""
    root = usd(2)
    first = usd(2, root)
    assert root.available() == {"USD": Decimal(0)}
    first.charge("USD", 0.5)
    assert root.available() == {"USD": Decimal(0)}
    first.close()
    assert root.available() == {"USD": Decimal("1.5")}


def test_a_childs_own_children_are_set_aside_in_the_child() -> None:
    """A grant is set aside once in each counter above it."""
    root = usd(10)
    child = usd(6, root)
    usd(4, child)
    assert child.available() == {"USD": Decimal(2)}
    assert root.available() == {"USD": Decimal(4)}


def test_a_cousin_behind_an_unbudgeted_parent_is_seen() -> None:
    """What is granted below a job without a counter is set aside in the next counter above."""
    root = usd(5)
    middle = Budget(None, root)
    usd(3, middle)
    assert middle.available() == {"USD": Decimal(2)}
    assert root.available() == {"USD": Decimal(2)}


def test_a_parent_that_spent_what_it_set_aside() -> None:
    """What it has left is promised already, so its child has nothing to give."""
    root = usd(6)
    child = usd(6, root)
    usd(4, child)
    root.charge("USD", 3)
    assert child.available() == {"USD": Decimal(-1)}


def test_an_overspent_child_holds_nothing() -> None:
    """Below zero there is nothing to set aside, and its parent has paid for the rest."""
    root = usd(5)
    usd(1, root).charge("USD", 3)
    assert root.available() == {"USD": Decimal(2)}


def test_a_currency_that_the_parent_lacks_is_not_available() -> None:
    """A budget is a bound on all currencies: a child gets none that its line does not have."""
    root = Budget({"USD": Decimal(5), "EUR": Decimal(5)})
    assert usd(1, root).available() == {"USD": Decimal(1)}


def test_closing_twice_is_closing() -> None:
    """The end of a job may be met on more than one way."""
    root = usd(2)
    child = usd(2, root)
    child.close()
    child.close()
    assert root.available() == {"USD": Decimal(2)}
    root.close()


def test_what_a_closed_jobs_children_hold_stays_set_aside() -> None:
    """A parent that has ended leaves the tree after the last of its children."""
    root = usd(5)
    middle = usd(4, root)
    leaf = usd(3, middle)
    middle.close()
    assert root.available() == {"USD": Decimal(2)}
    leaf.charge("USD", 1)
    assert root.available() == {"USD": Decimal(2)}
    leaf.close()
    assert root.available() == {"USD": Decimal(4)}


# --- any tree --------------------------------------------------------------------------------

CURRENCIES = ("USD", "credits")
amounts = st.decimals(min_value=0, max_value=100, places=2)
currencies = st.sampled_from(CURRENCIES)


@attrs.define(eq=False)
class Node:
    """What the oracle knows of a job: its grant, and what was spent by itself."""

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
        """Return the grant without all that was ever spent below it."""
        return node.granted[currency] - sum(below.spent[currency] for below in self.below(node))

    def held(self, holder: Node, currency: str, line: list[Node]) -> Fraction:
        """Add up the open counters next below a job, off the line that asks."""
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
        """Return what a new child may get, counter by counter."""
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
        """Delegate what is asked, as far as it is available."""
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
        """Spend, and hold what changed against who has that counter."""
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
        """Nothing is lost, and nothing is counted twice."""
        for node in self.all:
            assert {
                currency: Fraction(left) for currency, left in node.budget.remaining.items()
            } == {currency: self.left(node, currency) for currency in node.granted}

    @invariant()
    def what_is_available_is_what_nobody_holds(self) -> None:
        """The tree and the oracle agree on it, for all that could delegate."""
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
        """Exhaustion is any counter at or below zero, from the job up."""
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
    """The same, with jobs that spend what they do not have."""

    @rule(node=Tree.nodes, currency=currencies, value=amounts)
    def overspend(self, node: Node, currency: str, value: Decimal) -> None:
        """Spend without asking."""
        self.charge(node, currency, value)

    def who_keeps_within_bounds_overdraws_nobody(self) -> None:
        """Here nobody keeps within bounds."""


TestTree = Tree.TestCase
TestTree.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestOverspentTree = OverspentTree.TestCase
TestOverspentTree.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
