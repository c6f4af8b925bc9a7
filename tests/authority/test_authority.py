"""The check that comes before every operation."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest

from arcp_trio.authority.authority import Authority
from arcp_trio.authority.budget import Budget
from arcp_trio.authority.lease import Lease
from arcp_trio.wire.errors import BudgetExhausted, LeaseExpired, PermissionDenied
from arcp_trio.wire.json import dumps

NOW = 100.0  # on a monotonic clock
EXPIRES_AT = "2099-01-01T00:00:00Z"

ALL: Mapping[str, list[str]] = {
    "fs.read": ["/ws/**"],
    "fs.write": ["/ws/**"],
    "net.fetch": ["https://example.com/**"],
    "tool.call": ["search.*"],
    "agent.delegate": ["helper"],
    "model.use": ["anthropic/*"],
    "x-vendor.acme.gpu": ["small"],
}

OPERATIONS = [
    ("fs.read", "/ws/a"),
    ("fs.write", "/ws/a/b"),
    ("net.fetch", "https://example.com/x"),
    ("tool.call", "search.web"),
    ("agent.delegate", "helper"),
    ("model.use", "anthropic/claude-3-haiku"),
    ("x-vendor.acme.gpu", "small"),
]


def authority(
    request: Mapping[str, list[str]] | None = None,
    *,
    deadline: float | None = None,
    any_model: bool = False,
) -> Authority:
    """Return the authority of a job with this lease."""
    lease = Lease.read(request, None if deadline is None else EXPIRES_AT, now=0)
    return Authority(
        lease=lease, budget=Budget(lease.budget), deadline=deadline, any_model=any_model
    )


@pytest.mark.spec("9.1-1", "9.3-1", "9.3-3")
@pytest.mark.parametrize(("capability", "target"), OPERATIONS)
def test_what_the_lease_covers_may_be_done(capability: str, target: str) -> None:
    """The check returns without an error for operations that the lease covers."""
    authority(ALL, deadline=NOW + 1).check(capability, target, now=NOW)


@pytest.mark.spec("9.3-2")
@pytest.mark.parametrize(("capability", "target"), OPERATIONS)
def test_without_a_grant_nothing_may_be_done(capability: str, target: str) -> None:
    """An empty lease allows nothing, and a lease for other capabilities does not allow this one."""
    without = {name: patterns for name, patterns in ALL.items() if name != capability}
    for request in (None, {}, without, {**ALL, capability: []}):
        with pytest.raises(PermissionDenied) as caught:
            authority(request).check(capability, target, now=NOW)
        assert caught.value.message == f"the lease does not allow {capability} of {target!r}"
        assert caught.value.details == {"capability": capability, "target": target}


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ("fs.read", "/ws2/a"),
        ("fs.read", "/ws/../etc/passwd"),
        ("fs.read", "/ws/%2e%2e/etc"),
        ("fs.read", "ws/a"),
        ("fs.read", ""),
        ("fs.read", "/ws/\0"),
        ("fs.read", "/ws/\ud800"),
        ("net.fetch", "https://evil.com/.example.com/x"),
        ("net.fetch", "example.com"),
        ("tool.call", "search/web"),
        ("agent.delegate", "other@2"),
        ("model.use", "openai/gpt-4o"),
        ("fs.read", "/etc/" + "x" * 10_000),
        ("tool.call", "x" * 100_000),
    ],
)
def test_what_the_lease_does_not_cover_is_denied(capability: str, target: str) -> None:
    """The refusal names capability and target, clipped, in text that can be sent."""
    with pytest.raises(PermissionDenied) as caught:
        authority(ALL).check(capability, target, now=NOW)
    assert capability in caught.value.message
    assert repr(target)[:80] in caught.value.message
    assert len(caught.value.message) < 320
    assert len(dumps(caught.value.payload())) < 1600


@pytest.mark.parametrize(
    "capability", ["", "fs", "fs.delete", "FS.READ", "x-vendor", "cost.budget", "*", "\ud800" * 999]
)
def test_an_unknown_capability_is_denied(capability: str) -> None:
    """An unknown capability is refused, and so is `cost.budget`, which is not an operation."""
    with pytest.raises(PermissionDenied, match="no such capability") as caught:
        authority({**ALL, "cost.budget": ["USD:1"]}).check(capability, "USD:1", now=NOW)
    dumps(caught.value.payload())
    assert len(caught.value.message) < 120


def test_every_name_of_the_target_has_to_be_allowed() -> None:
    """The target and the real path to which a link leads both have to be allowed."""
    job = authority(ALL)
    job.check("fs.read", "/ws/link", now=NOW, also=["/ws/real", "/ws/other"])
    with pytest.raises(PermissionDenied, match="what '/ws/link' stands for") as caught:
        job.check("fs.read", "/ws/link", now=NOW, also=["/ws/real", "/etc/passwd"])
    assert caught.value.details == {}, "where a link leads is not told"
    with pytest.raises(PermissionDenied, match="'/etc/passwd'"):
        job.check("fs.read", "/etc/passwd", now=NOW, also=["/ws/real"])


@pytest.mark.spec("9.5-4", "9.5-5")
@pytest.mark.parametrize(("capability", "target"), OPERATIONS)
def test_nothing_may_be_done_from_the_deadline_on(capability: str, target: str) -> None:
    """At the deadline itself, nothing is allowed any longer."""
    job = authority(ALL, deadline=NOW)
    job.check(capability, target, now=NOW - 0.001)
    for now in (NOW, NOW + 3600):
        with pytest.raises(LeaseExpired) as caught:
            job.check(capability, target, now=now)
        assert caught.value.message == f"lease expired at {EXPIRES_AT}"
        assert not caught.value.retryable


@pytest.mark.spec("9.6-6", "9.6-7")
@pytest.mark.parametrize(("capability", "target"), [*OPERATIONS, ("fs.read", "/etc/passwd")])
def test_nothing_may_be_done_without_money(capability: str, target: str) -> None:
    """A counter at zero makes every operation fail, also one that the lease does not cover."""
    job = authority({**ALL, "cost.budget": ["USD:1.00", "credits:5"]})
    job.budget.charge("USD", Decimal("1.00"))
    with pytest.raises(BudgetExhausted) as caught:
        job.check(capability, target, now=NOW)
    assert caught.value.message == "USD budget exhausted"


def test_a_budget_of_zero_leaves_no_free_operation() -> None:
    """With a budget of zero, the first operation is refused."""
    with pytest.raises(BudgetExhausted):
        authority({**ALL, "cost.budget": ["USD:0.00"]}).check("tool.call", "search.web", now=NOW)


def test_a_child_stops_with_its_parents_money() -> None:
    """A delegated job is refused when its parent's budget is used up, whatever its own has left."""
    parent = authority({**ALL, "cost.budget": ["USD:2"]})
    children = [
        Authority(lease=parent.lease, budget=Budget(amounts, parent.budget))
        for amounts in (None, {"USD": Decimal(1)})
    ]
    for child in children:
        child.check("tool.call", "search.web", now=NOW)
    parent.budget.charge("USD", 2)
    for child in children:
        with pytest.raises(BudgetExhausted):
            child.check("tool.call", "search.web", now=NOW)


def test_a_check_spends_nothing() -> None:
    """Neither a refused operation nor an allowed one changes a counter."""
    job = authority({**ALL, "cost.budget": ["USD:1"]})
    job.check("tool.call", "search.web", now=NOW)
    with pytest.raises(PermissionDenied):
        job.check("tool.call", "other", now=NOW)
    assert job.budget.remaining == {"USD": Decimal(1)}


def test_expiry_comes_before_money_and_money_before_patterns() -> None:
    """An expired lease is reported before a used-up budget, and that before a missing pattern."""
    job = authority({"cost.budget": ["USD:0"]}, deadline=NOW)
    with pytest.raises(LeaseExpired):
        job.check("fs.read", "/x", now=NOW)
    with pytest.raises(BudgetExhausted):
        job.check("fs.read", "/x", now=NOW - 1)


@pytest.mark.spec("9.7-1", "9.7-2")
def test_a_model_that_no_pattern_matches_is_denied() -> None:
    """A lease that names models allows only those, under either policy."""
    for any_model in (False, True):
        job = authority({"model.use": ["anthropic/*"]}, any_model=any_model)
        job.check("model.use", "anthropic/claude-3-haiku", now=NOW)
        with pytest.raises(PermissionDenied):
            job.check("model.use", "openai/gpt-4o", now=NOW)
        empty = authority({"model.use": []}, any_model=any_model)
        with pytest.raises(PermissionDenied):
            empty.check("model.use", "anthropic/claude-3-haiku", now=NOW)


@pytest.mark.spec("9.7-4")
def test_a_lease_without_models_forbids_them_unless_the_policy_allows_any() -> None:
    """The policy allows any model to a lease that names none, but nothing else."""
    with pytest.raises(PermissionDenied):
        authority({}).check("model.use", "openai/gpt-4o", now=NOW)
    job = authority({}, any_model=True)
    job.check("model.use", "openai/gpt-4o", now=NOW)
    refused: list[tuple[str, Any]] = [("tool.call", "search.web"), ("model.use", "")]
    for capability, target in refused:
        with pytest.raises(PermissionDenied):
            job.check(capability, target, now=NOW)
