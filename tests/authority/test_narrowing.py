"""The lease of a child within its parent's (§9.4)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from arcp_trio.authority.budget import Budget
from arcp_trio.authority.lease import Lease
from arcp_trio.authority.narrowing import narrowed
from arcp_trio.wire.errors import LeaseSubsetViolation
from arcp_trio.wire.json import dumps
from tests.authority.support import LATER, SOON, budget, lease

# --- narrowing -------------------------------------------------------------------------------


def violation(child: Lease, parent: Lease, available: Any = None) -> LeaseSubsetViolation:
    """Return the refusal of a child's lease, and check that it can be sent."""
    with pytest.raises(LeaseSubsetViolation) as caught:
        narrowed(child, parent, available)
    dumps(caught.value.payload())
    return caught.value


@pytest.mark.spec("9.4-1", "9.4-7")
def test_an_equal_lease_is_a_subset() -> None:
    """A child may have all that its parent has."""
    whole = lease(
        {"fs.read": ["/ws/**"], "tool.call": ["*"], "model.use": ["m/*"], "cost.budget": ["USD:5"]},
        LATER,
    )
    assert narrowed(whole, whole, whole.budget) == whole


@pytest.mark.parametrize(
    ("capability", "children", "parents"),
    [
        ("fs.read", ["/a/b/*", "/a/b/c"], ["/a/**"]),
        ("tool.call", ["search.web"], ["search.*"]),
        ("model.use", ["tier-fast/haiku"], ["tier-fast/*"]),
        ("fs.read", ["/a/x", "/b/x"], ["/a/*", "/b/*"]),
        ("x-vendor.acme.gpu", ["a"], ["*"]),
        ("net.fetch", ["HTTPS://H.example:443/a"], ["https://h.example/**"]),
    ],
)
def test_narrower_patterns_are_accepted(
    capability: str, children: list[str], parents: list[str]
) -> None:
    """A child may have patterns that its parent covers."""
    child, parent = lease({capability: children}), lease({capability: parents})
    assert narrowed(child, parent, None) == child


@pytest.mark.spec("9.4-1", "9.4-2", "9.4-8", "9.4-9")
@pytest.mark.parametrize(
    ("capability", "child", "parent"),
    [
        ("fs.read", "/a/**", {"fs.read": ["/a/*"]}),
        ("fs.write", "/a/b", {"fs.read": ["/a/**"]}),
        ("tool.call", "*", {"tool.call": ["search.*"]}),
        ("tool.call", "x", {"tool.call": []}),
        ("model.use", "tier-slow/x", {"model.use": ["tier-fast/*"]}),
        ("model.use", "tier-fast/x", {}),
        ("x-vendor.acme.gpu", "a", {"x-vendor.acme": ["**"]}),
    ],
)
def test_a_wider_pattern_is_named(capability: str, child: str, parent: dict[str, Any]) -> None:
    """The refusal names capability and pattern that the parent does not cover."""
    error = violation(lease({capability: [child]}), lease(parent))
    assert error.message == f"beyond the parent's lease: {capability} {child!r}"
    assert error.details == {"beyond": [{"capability": capability, "pattern": child}]}


@pytest.mark.spec("9.4-3", "9.4-4")
def test_a_childs_budget_is_held_against_what_is_left() -> None:
    """After 3.00 of 5.00 were spent, a child may have 2.00, and not 2.01."""
    parent = budget("USD:5.00")
    counters = Budget(parent.budget)
    counters.charge("USD", 3)
    accepted = narrowed(budget("USD:2.00"), parent, counters.available())
    assert accepted.budget == {"USD": Decimal(2)}
    error = violation(budget("USD:2.01"), parent, counters.available())
    assert error.message == "beyond the parent's lease: cost.budget USD:2.01 of 2.00 available"
    assert error.details == {
        "beyond": [
            {"capability": "cost.budget", "currency": "USD", "asked": "2.01", "available": "2.00"}
        ]
    }


def test_amounts_are_compared_as_numbers() -> None:
    """Amounts are compared as numbers: 9 is within 10.00, and 10.01 is not."""
    parent = budget("USD:10.00")
    assert narrowed(budget("USD:9"), parent, parent.budget).budget == {"USD": Decimal(9)}
    violation(budget("USD:10.01"), parent, parent.budget)


@pytest.mark.spec("9.4-3")
def test_two_children_together_get_no_more_than_there_is() -> None:
    """The second of two that would each fit is refused while the first runs."""
    parent = budget("USD:2")
    counters = Budget(parent.budget)
    first = Budget(narrowed(budget("USD:2"), parent, counters.available()).budget, counters)
    violation(budget("USD:2"), parent, counters.available())
    first.close()
    narrowed(budget("USD:2"), parent, counters.available())


def test_a_currency_that_the_parent_lacks_is_beyond_it() -> None:
    """A parent with dollars cannot grant euros, not even zero."""
    error = violation(budget("USD:1", "EUR:0"), budget("USD:5"), {"USD": Decimal(5)})
    assert error.message == "beyond the parent's lease: cost.budget EUR:0 of none available"
    assert error.details["beyond"][0]["available"] is None


def test_a_parent_without_a_budget_sets_no_ceiling() -> None:
    """A child of a parent without a budget may have any budget."""
    assert narrowed(budget("USD:7"), lease(), None).budget == {"USD": Decimal(7)}


def test_a_parents_ancestors_set_one() -> None:
    """A parent without a budget can grant no more than its ancestors have."""
    middle = Budget(None, Budget({"USD": Decimal(5)}))
    narrowed(budget("USD:5"), lease(), middle.available())
    violation(budget("USD:6"), lease(), middle.available())


def test_a_budget_without_counters_is_its_own_ceiling() -> None:
    """Without known counters, the parent's budget is the bound."""
    violation(budget("USD:6"), budget("USD:5"), None)


def test_a_child_need_not_have_a_budget() -> None:
    """A child without a budget is accepted."""
    assert narrowed(lease(), budget("USD:5"), {"USD": Decimal(5)}).budget is None


@pytest.mark.spec("9.4-5", "9.4-6", "9.4-7")
def test_a_child_expires_with_its_parent_or_before() -> None:
    """A child may expire before its parent, and not after it."""
    parent = lease(None, LATER)
    assert narrowed(lease(None, SOON), parent, None).expires_at == SOON
    assert narrowed(lease(None, LATER), parent, None).expires_at == LATER
    assert narrowed(lease(None, SOON), lease(), None).expires_at == SOON
    error = violation(lease(None, LATER), lease(None, SOON))
    assert error.message == f"beyond the parent's lease: expires_at {LATER} is later than {SOON}"
    assert error.details == {"beyond": [{"expires_at": LATER, "available": SOON}]}


@pytest.mark.spec("9.4-7")
def test_a_child_inherits_its_parents_expiry() -> None:
    """A child without an expiry has its parent's, as the parent's was given."""
    parent = lease(None, SOON)
    child = narrowed(lease({}), parent, None)
    assert (child.expires_at, child.expires) == (SOON, parent.expires)


def test_everything_beyond_is_named_at_once() -> None:
    """The refusal names everything that exceeds the parent's lease."""
    parent = lease({"fs.read": ["/a/*"], "cost.budget": ["USD:5"]}, SOON)
    child = lease({"fs.read": ["/**"], "tool.call": ["x"], "cost.budget": ["USD:6"]}, LATER)
    error = violation(child, parent, parent.budget)
    assert len(error.details["beyond"]) == 4
    for words in ("fs.read '/**'", "tool.call 'x'", "cost.budget USD:6 of 5", "expires_at"):
        assert words in error.message


def test_the_list_of_what_is_beyond_has_an_end() -> None:
    """The refusal names a bounded number of excesses."""
    error = violation(lease({f"x-vendor.a{n}": ["a"] for n in range(20)}), lease())
    assert len(error.details["beyond"]) == 8
    assert error.message.endswith("; and more")


@pytest.mark.spec("9.4-8")
def test_a_child_without_models_gets_none_from_a_parent_with_some() -> None:
    """A child that does not name `model.use` gets no model, if its parent names some."""
    parent = lease({"model.use": ["tier-fast/*"]})
    child = narrowed(lease(), parent, None, any_model=True)
    assert child.names("model.use")
    assert not child.allows("model.use", ("tier-fast/a",))
    assert child.wire() == {}


def test_where_any_model_may_be_used_a_child_may_be_given_some() -> None:
    """Where any model is allowed, a parent that does not name `model.use` can grant any."""
    some = lease({"model.use": ["tier-fast/*"]})
    assert narrowed(some, lease(), None, any_model=True) == some
    with pytest.raises(LeaseSubsetViolation):
        narrowed(some, lease({"model.use": []}), None, any_model=True)
    with pytest.raises(LeaseSubsetViolation):
        narrowed(some, lease(), None)
