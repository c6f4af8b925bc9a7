"""Budgets: exact counters, spending in a tree, and amounts set aside for children."""

from __future__ import annotations

import json
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.authority.budget import PLACES, WHOLE_DIGITS, Budget, exact
from arcp_trio.wire.json import dumps
from tests.authority.support import left


def usd(amount: str | int, parent: Budget | None = None) -> Budget:
    """Return a budget in dollars."""
    return Budget({"USD": Decimal(amount)}, parent)


# --- one job ---------------------------------------------------------------------------------


@pytest.mark.spec("9.6-2", "9.6-4")
def test_a_cost_is_taken_off_the_counter_of_its_currency() -> None:
    """Each currency has its own counter."""
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
    """A hundred cents are exactly a dollar."""
    budget = usd("1.00")
    for _ in range(100):
        assert budget.exhausted() is None
        budget.charge("USD", 0.01)
    assert left(budget) == "0.00"


@pytest.mark.spec("9.6-4", "9.6-7")
def test_overspending_takes_the_counter_below_zero() -> None:
    """A cost above what is left takes the counter below zero."""
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
    """A cost that is negative, not a number or out of bounds is refused, and changes no counter."""
    parent = usd(2)
    budget = usd(1, parent)
    with pytest.raises(ValueError, match=r".+"):
        budget.charge("USD", value)
    assert (left(budget), left(parent)) == ("1", "2")


@pytest.mark.parametrize("value", [0, 0.0, -0.0, Decimal("0.00")])
def test_a_cost_of_nothing_changes_nothing(value: float | Decimal) -> None:
    """A cost of zero changes no counter, and no node is returned."""
    assert usd(1).charge("USD", value) == []


def test_a_currency_without_a_budget() -> None:
    """A cost in a currency without a counter changes nothing; currencies are case-sensitive."""
    budget = usd(1)
    assert budget.charge("EUR", 1) == []
    assert budget.charge("usd", 1) == []
    assert left(budget) == "1"


@pytest.mark.spec("9.6-7")
def test_a_budget_of_zero_is_exhausted_from_the_start() -> None:
    """A budget of zero is exhausted before anything is spent."""
    assert usd("0.00").exhausted() == "USD"


def test_one_exhausted_currency_is_enough() -> None:
    """Any counter at zero exhausts the budget, whatever the others have."""
    budget = Budget({"USD": Decimal(5), "credits": Decimal(1)})
    budget.charge("credits", 1)
    assert budget.exhausted() == "credits"


def test_a_counter_stays_writable_however_much_is_overspent() -> None:
    """A charge that would take a counter out of bounds is refused, and changes no counter."""
    parent = usd(10**WHOLE_DIGITS - 1)
    budget = usd(0, parent)
    most = 10**WHOLE_DIGITS - 1
    budget.charge("USD", most)
    with pytest.raises(ValueError, match="more than 18 digits"):
        budget.charge("USD", 1)
    assert left(parent) == "0"
    assert json.loads(dumps(budget.remaining)) == {"USD": -most}


def test_what_is_left_is_a_copy() -> None:
    """Changing the returned amounts changes no counter."""
    budget = usd(1)
    budget.remaining["USD"] = Decimal(99)
    assert left(budget) == "1"


class Cents(IntEnum):
    """Numbers with names."""

    TEN = 10


def test_a_number_of_another_class_is_the_number_it_is() -> None:
    """Instances of subclasses of numbers are charged by their value, not by their `repr`."""

    class Dollars(float):
        def __repr__(self) -> str:
            return f"${float(self)}"

    assert exact(Dollars(0.1)) == Decimal("0.1")
    assert exact(Cents.TEN) == 10


@given(st.floats(min_value=1e-23, max_value=1e17))
def test_ordinary_floats_are_taken_as_they_are_written(value: float) -> None:
    """A float is charged with exactly the digits with which it is written."""
    assert exact(value) == Decimal(repr(value))


# --- parents and children --------------------------------------------------------------------


def test_spending_counts_against_every_ancestor() -> None:
    """A charge returns the nodes that it changed, innermost first."""
    root = Budget({"USD": Decimal(5), "EUR": Decimal(5)})
    middle = Budget({"EUR": Decimal(2)}, root)
    leaf = usd(2, middle)
    assert leaf.charge("USD", 1) == [leaf, root]
    assert leaf.charge("EUR", 1) == [middle, root]
    assert root.remaining == {"USD": Decimal(4), "EUR": Decimal(4)}
    assert middle.remaining == {"EUR": Decimal(1)}


def test_a_child_without_a_budget_spends_its_parents() -> None:
    """A job without a budget spends its parent's."""
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
    """Without a budget in the line, a child may be granted any amount."""
    root = Budget(None)
    assert root.available() is None
    assert Budget(None, root).available() is None
    assert root.exhausted() is None
    child = usd(7, root)
    assert root.available() is None
    assert child.available() == {"USD": Decimal(7)}


@pytest.mark.spec("9.4-3", "9.4-4")
def test_what_is_spent_cannot_be_granted() -> None:
    """After 3.00 of 5.00 were spent, 2.00 are available to a child."""
    budget = usd("5.00")
    budget.charge("USD", 3)
    assert budget.available() == {"USD": Decimal(2)}


@pytest.mark.spec("9.4-3")
def test_two_children_together_get_no_more_than_there_is() -> None:
    """The grant of one child is not available to another until the first has ended."""
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
    """A parent that spent what it had set aside leaves nothing for a grandchild."""
    root = usd(6)
    child = usd(6, root)
    usd(4, child)
    root.charge("USD", 3)
    assert child.available() == {"USD": Decimal(-1)}


def test_an_overspent_child_holds_nothing() -> None:
    """A child below zero holds nothing, since its parent was charged already."""
    root = usd(5)
    usd(1, root).charge("USD", 3)
    assert root.available() == {"USD": Decimal(2)}


def test_a_currency_that_the_parent_lacks_is_not_available() -> None:
    """A child gets no currency that a budgeted parent lacks."""
    root = Budget({"USD": Decimal(5), "EUR": Decimal(5)})
    assert usd(1, root).available() == {"USD": Decimal(1)}


def test_closing_twice_is_closing() -> None:
    """A node can be closed twice."""
    root = usd(2)
    child = usd(2, root)
    child.close()
    child.close()
    assert root.available() == {"USD": Decimal(2)}
    root.close()


def test_what_a_closed_jobs_children_hold_stays_set_aside() -> None:
    """A closed node stays in the tree until its last child is closed."""
    root = usd(5)
    middle = usd(4, root)
    leaf = usd(3, middle)
    middle.close()
    assert root.available() == {"USD": Decimal(2)}
    leaf.charge("USD", 1)
    assert root.available() == {"USD": Decimal(2)}
    leaf.close()
    assert root.available() == {"USD": Decimal(4)}
