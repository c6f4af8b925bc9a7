"""A lease and a budget in one `lease_request`."""

from __future__ import annotations

import pytest

from arcp_trio.wire.lease_request import lease_request


def test_lease_and_budget_are_one_request() -> None:
    """Patterns and amounts are in one request; currencies may come from lease and budget."""
    lease = {"tool.call": ("a", "b"), "cost.budget": ["USD:5", "EUR:1"]}
    assert lease_request(None, None) == {}
    assert lease_request(None, {}) == {"cost.budget": []}
    assert lease_request(lease, {"credits": "3"}) == {
        "tool.call": ["a", "b"],
        "cost.budget": ["USD:5", "EUR:1", "credits:3"],
    }
    assert lease_request({"cost.budget": ["USDT:5"]}, {"USD": "4"}) == {
        "cost.budget": ["USDT:5", "USD:4"]
    }


def test_a_currency_comes_one_way() -> None:
    """A currency in both lease and budget is refused, since its amounts would add up."""
    with pytest.raises(ValueError, match=r"USD is in the budget, and in the lease's cost\.budget"):
        lease_request({"cost.budget": ["EUR:1", "USD:5"]}, {"USD": "4"})


def test_a_string_is_no_list() -> None:
    """A string in place of a list of patterns is refused."""
    with pytest.raises(TypeError, match=r"tool\.call: expected a list of patterns"):
        lease_request({"tool.call": "abc"}, None)
