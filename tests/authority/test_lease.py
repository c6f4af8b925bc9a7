"""Leases: how they are read and written, and that no delegation adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.authority.lease import CAPABILITIES, MAX_PATTERNS, MAX_SEGMENTS, Lease
from arcp_trio.authority.narrowing import narrowed
from arcp_trio.authority.targets import forms
from arcp_trio.wire.errors import LeaseSubsetViolation
from arcp_trio.wire.json import dumps
from arcp_trio.wire.timestamps import rfc3339
from tests.authority.support import LATER, NOW, SOON, budget, lease, refusal

# --- reading ---------------------------------------------------------------------------------


@pytest.mark.spec("9.2-1")
def test_every_reserved_capability_can_be_granted() -> None:
    """The seven capabilities of §9.2 and those of vendors can be granted."""
    request = {
        "fs.read": ["/ws/**"],
        "fs.write": ["/ws/src/*"],
        "net.fetch": ["https://example.com/**"],
        "tool.call": ["search.*"],
        "agent.delegate": ["helper"],
        "model.use": ["tier-fast/*"],
        "cost.budget": ["USD:5.00", "credits:1000"],
        "x-vendor.acme": ["a"],
        "x-vendor.acme.gpu-time": ["b"],
    }
    assert set(request) >= CAPABILITIES
    read = lease(request)
    assert read.wire() == request
    assert read.budget == {"USD": Decimal("5.00"), "credits": Decimal(1000)}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "fs",
        "fs.delete",
        "FS.READ",
        "fs.read ",
        "x-vendor",
        "x-vendor.",
        "x-vendor..a",
        "x-vendor.a.",
        "x-vendor.ä",
        "x-vendor.a\n",
        "x-vendor." + "a" * 128,
        None,
        1,
    ],
)
def test_other_names_are_refused(name: Any) -> None:
    """Other names of capabilities are refused."""
    message = refusal({name: ["a"]})
    assert message.startswith("expected a capability of §9.2, or x-vendor.<vendor> @ ")
    assert len(message) < 200


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ("fs.read", "expected an object @ $.lease_request"),
        (["fs.read"], "expected an object @ $.lease_request"),
        ({"fs.read": "/ws/**"}, "expected an array of strings @ $.lease_request['fs.read']"),
        ({"fs.read": None}, "expected an array of strings @ $.lease_request['fs.read']"),
        ({"fs.read": {"/ws": 1}}, "expected an array of strings @ $.lease_request['fs.read']"),
        ({"fs.read": ["/a", 1]}, "expected a string @ $.lease_request['fs.read'][1]"),
        ({"fs.read": [None]}, "expected a string @ $.lease_request['fs.read'][0]"),
        ({"fs.read": [""]}, " @ $.lease_request['fs.read'][0]"),
        ({"fs.read": ["/ws/../etc"]}, " @ $.lease_request['fs.read'][0]"),
        ({"tool.call": ["\ud800"]}, " @ $.lease_request['tool.call'][0]"),
        ({"cost.budget": [5]}, "expected a string @ $.lease_request['cost.budget'][0]"),
        ({"cost.budget": "USD:5"}, "expected an array of strings @ $.lease_request['cost.budget']"),
    ],
)
def test_what_is_malformed_is_refused_where_it_stands(request_: Any, problem: str) -> None:
    """Malformed requests are refused with the path of the problem."""
    message = refusal(request_)
    assert message.endswith(problem)
    dumps(message)


def test_all_problems_are_named_at_once() -> None:
    """One error names all problems of a request."""
    message = refusal(
        {"fs.read": ["/a", ""], "fs.delete": [], "tool.call": "*", "cost.budget": ["USD"]},
        "not-a-date",
    )
    for path in (
        "['fs.read'][1]",
        "['fs.delete']",
        "['tool.call']",
        "['cost.budget'][0]",
        "$.lease_constraints.expires_at",
    ):
        assert path in message
    assert message.count(" @ ") == 5


def test_the_list_of_problems_has_an_end() -> None:
    """A thousand wrong patterns make a short error."""
    message = refusal({"fs.read": [""] * MAX_PATTERNS})
    assert message.count(" @ ") == 8
    assert message.endswith("; and more")


@pytest.mark.parametrize(
    "request_",
    [
        {"tool.call": ["a"] * (MAX_PATTERNS + 1)},
        {"tool.call": [""] * (MAX_PATTERNS + 1)},
        {"tool.call": ["a"] * MAX_PATTERNS, "cost.budget": ["USD:1"]},
        {f"x-vendor.a{n}": [] for n in range(MAX_PATTERNS + 1)},
    ],
)
def test_a_lease_has_a_bounded_number_of_patterns(request_: Mapping[str, Any]) -> None:
    """A lease with more patterns than the bound is refused."""
    assert refusal(request_) == f"more than {MAX_PATTERNS} patterns @ $.lease_request"


def test_a_lease_has_a_bounded_number_of_segments() -> None:
    """A lease with more segments than the bound is refused."""
    long = "/".join("a" * 100)
    request = {"tool.call": [long] * (MAX_SEGMENTS // 100), "model.use": [long]}
    assert refusal(request) == f"more than {MAX_SEGMENTS} segments in all @ $.lease_request"


def test_as_many_patterns_as_there_may_be() -> None:
    """A lease at the bound of patterns is accepted."""
    lease({"tool.call": [f"t{n}" for n in range(MAX_PATTERNS)]})


@pytest.mark.parametrize("request_", [None, {}, {"fs.read": []}, {"fs.read": [], "model.use": ()}])
def test_what_grants_nothing_is_not_shown(request_: Any) -> None:
    """Capabilities without patterns are left out, because some clients refuse empty lists."""
    empty = lease(request_)
    assert empty.wire() == {}
    assert empty.budget is None
    assert not empty.allows("fs.read", ("/",))


@pytest.mark.spec("9.6-1")
@pytest.mark.parametrize(
    "amount",
    [
        "USD",
        "USD:",
        ":5",
        "",
        "USD:-1",
        "USD:+1",
        "USD:1e3",
        "usd 5",
        "USD:5.",
        "USD:.5",
        "USD: 5",
        " USD:5",
        "USD:5\n",
        "USD:5:6",
        "USD:1_000",
        "USD:1,000",
        "USD:\u0665",
        "USD:NaN",
        "USD:inf",
        "USD:0x10",
        "1USD:5",
        "ÜSD:5",
        "U" * 33 + ":5",
        "USD:" + "9" * 19,
        "USD:0." + "1" * 13,
    ],
)
def test_amounts_are_read_to_the_letter(amount: str) -> None:
    """A malformed amount is refused."""
    assert refusal({"cost.budget": ["EUR:1", amount]}).endswith(
        " @ $.lease_request['cost.budget'][1]"
    )


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("USD:0.00", "USD:0.00"),
        ("USD:5", "USD:5"),
        ("USD:005.50", "USD:5.50"),
        ("x-tokens_2:1", "x-tokens_2:1"),
        ("USD:" + "9" * 18 + "." + "9" * 12, "USD:" + "9" * 18 + "." + "9" * 12),
        ("USD:0.000000000001", "USD:0.000000000001"),
    ],
)
def test_amounts_are_shown_as_amounts(amount: str, shown: str) -> None:
    """Amounts are written with all their digits and without an exponent."""
    assert budget(amount).wire() == {"cost.budget": [shown]}


def test_an_empty_list_of_amounts_is_refused() -> None:
    """An empty list of amounts is refused as ambiguous."""
    assert "@ $.lease_request['cost.budget']" in refusal({"cost.budget": []})


def test_amounts_of_one_currency_add_up() -> None:
    """Amounts of one currency add up; currencies are case-sensitive."""
    both = budget("USD:1", "credits:7", "Credits:8", "USD:2.50")
    assert both.budget == {"USD": Decimal("3.50"), "credits": Decimal(7), "Credits": Decimal(8)}
    assert both.wire() == {"cost.budget": ["USD:3.50", "credits:7", "Credits:8"]}
    assert narrowed(budget("USD:1", "USD:2"), both, both.budget).budget == {"USD": Decimal(3)}
    with pytest.raises(LeaseSubsetViolation):
        narrowed(budget("USD:2", "USD:2"), both, both.budget)


def test_amounts_add_up_within_bounds() -> None:
    """The amount that makes a sum exceed its bounds is refused."""
    message = refusal({"cost.budget": ["USD:" + "9" * 18, "EUR:1", "USD:1"]})
    assert message == "an amount of more than 18 digits @ $.lease_request['cost.budget'][2]"


@pytest.mark.spec("9.5-1", "9.5-2", "9.5-3")
@pytest.mark.parametrize(
    "expires_at",
    [
        rfc3339(NOW),
        rfc3339(NOW - 1),
        "2000-01-01T00:00:00Z",
        "2099-01-01T00:00:00+02:00",
        "2099-01-01T00:00:00+00:00",
        "2099-01-01T00:00:00",
        "2099-01-01T00:00:00z",
        "2099-01-01t00:00:00Z",
        "2099-01-01 00:00:00Z",
        "2099-02-30T00:00:00Z",
        "2026-13-45T00:00:00Z",
        "2099-01-01T24:00:00Z",
        "not-a-date",
        "",
        "Z",
        4_102_444_800,
        4_102_444_800.0,
        True,
        ["2099-01-01T00:00:00Z"],
    ],
)
def test_an_expiry_that_is_past_or_unreadable_is_refused(expires_at: Any) -> None:
    """A past or malformed expiry is refused."""
    assert refusal({}, expires_at).endswith(" @ $.lease_constraints.expires_at")


@pytest.mark.spec("9.5-2")
def test_an_expiry_is_kept_as_it_was_given() -> None:
    """An expiry is written as it was given, also in a lease without grants."""
    bounded = lease(None, "2099-01-01T00:00:00.5Z")
    assert bounded.expires == 4_070_908_800.5
    assert bounded.constraints() == {"expires_at": "2099-01-01T00:00:00.5Z"}
    assert lease(None, rfc3339(NOW + 0.001)).expires == pytest.approx(NOW + 0.001)


def test_no_expiry_no_constraints() -> None:
    """A lease without an expiry has no constraints."""
    assert lease({}).constraints() is None
    assert lease({}).expires is None


# --- allowing --------------------------------------------------------------------------------


def test_one_pattern_is_enough_and_each_form_needs_one() -> None:
    """Different forms of a target may be covered by different patterns."""
    two = lease({"fs.read": ["/a/*", "/b/*"]})
    assert two.allows("fs.read", ("/a/x",))
    assert two.allows("fs.read", ("/a/x", "/b/x"))
    assert not two.allows("fs.read", ("/a/x", "/c/x"))
    assert not two.allows("fs.write", ("/a/x",))


def test_nothing_named_is_nothing_allowed() -> None:
    """A target without forms is not allowed."""
    assert not lease({"fs.read": ["**"]}).allows("fs.read", ())


# --- any lease -------------------------------------------------------------------------------

names = st.lists(st.sampled_from(["a", "b", "*", "**", "a*", "*b"]), min_size=1, max_size=3).map(
    "/".join
)
targets = st.lists(st.sampled_from(["a", "b", "ab", "aab", "c"]), min_size=1, max_size=4).map(
    "/".join
)
capabilities = st.sampled_from(["tool.call", "model.use", "x-vendor.acme"])
money = st.dictionaries(
    st.sampled_from(["USD", "EUR"]), st.decimals(min_value=0, max_value=9, places=2)
).map(lambda amounts: [f"{currency}:{amount}" for currency, amount in amounts.items()])


@st.composite
def leases(draw: st.DrawFn) -> Lease:
    """Return a strategy for any lease."""
    request = draw(st.dictionaries(capabilities, st.lists(names, max_size=3)))
    amounts = draw(money)
    if amounts:
        request["cost.budget"] = amounts
    return lease(request, draw(st.sampled_from([None, SOON, LATER])))


@pytest.mark.spec("9.4-1")
@given(
    child=leases(),
    parent=leases(),
    capability=capabilities,
    target=targets,
    any_model=st.booleans(),
)
def test_no_delegation_adds_authority(
    child: Lease, parent: Lease, capability: str, target: str, *, any_model: bool
) -> None:
    """An accepted child may do, spend and outlive no more than its parent."""
    try:
        effective = narrowed(child, parent, parent.budget, any_model=any_model)
    except LeaseSubsetViolation:
        return
    covered = forms(capability, target)

    def may(of: Lease) -> bool:
        by_policy = any_model and capability == "model.use" and not of.names(capability)
        return by_policy or of.allows(capability, covered)

    assert may(parent) or not may(effective)
    if parent.expires is not None:
        assert effective.expires is not None
        assert effective.expires <= parent.expires
    if parent.budget is not None:
        for currency, amount in (effective.budget or {}).items():
            assert amount <= parent.budget[currency]


@given(leases())
def test_what_is_shown_reads_the_same(given_lease: Lease) -> None:
    """A lease read from the lease of an acceptance allows the same."""
    again = lease(given_lease.wire(), (given_lease.constraints() or {}).get("expires_at"))
    nonempty = {name: patterns for name, patterns in given_lease.grants.items() if patterns}
    assert again == attrs.evolve(given_lease, grants=nonempty)
