"""What a lease allows on the condition that a person agrees."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.authority.approvals import ASK, ASKABLE, Approval
from arcp_trio.authority.authority import Authority
from arcp_trio.authority.budget import Budget
from arcp_trio.authority.ceiling import Ceiling
from arcp_trio.authority.lease import Lease
from arcp_trio.authority.narrowing import narrowed
from arcp_trio.authority.targets import forms
from arcp_trio.wire.errors import (
    ApprovalNeeded,
    BudgetExhausted,
    LeaseExpired,
    LeaseSubsetViolation,
    PermissionDenied,
)
from tests.authority.support import lease

NOW = 100.0

SEGMENTS = st.sampled_from(["a", "b", "*", "**", "a*"])
NAMES = st.sampled_from(["a", "b", "ab", "..", "%61", ""])
PATTERNS = st.lists(SEGMENTS, min_size=1, max_size=3).map(lambda each: "/" + "/".join(each))
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda each: "/" + "/".join(each))
GRANTS = st.lists(PATTERNS, max_size=3)


def authority(granted: Lease, *approvals: Approval, deadline: float | None = None) -> Authority:
    """Return the authority of a job with this lease, to whom people have agreed to something."""
    return Authority(
        lease=granted,
        budget=Budget(granted.budget),
        deadline=deadline,
        approvals=list(approvals),
        reserved=["/secret"],
    )


def approval(*targets: str, capability: str = "fs.write") -> Approval:
    """Return alice's agreement."""
    return Approval(capability=capability, targets=targets, by="alice")


def allows(held: Authority, path: str, once: Approval | None = None) -> bool:
    """Return whether a write is allowed."""
    with suppress(PermissionDenied):
        held.check("fs.write", path, now=NOW, approvals=[] if once is None else [once])
        return True
    return False


@given(patterns=GRANTS, path=PATHS, other=PATHS)
def test_an_approval_does_what_the_lease_would(patterns: list[str], path: str, other: str) -> None:
    """What is asked for and agreed to is what the same patterns would grant, and nothing more."""
    granted = allows(authority(lease({"fs.write": patterns})), path)
    asking = lease({f"{ASK}fs.write": patterns})
    assert allows(authority(asking), path) is False
    with pytest.raises(ApprovalNeeded if granted else PermissionDenied) as caught:
        authority(asking).check("fs.write", path, now=NOW)
    assert isinstance(caught.value, ApprovalNeeded) is granted
    assert allows(authority(asking), path, approval(path)) is granted
    assert allows(authority(asking, approval(path)), path) is granted
    assert allows(authority(asking), path, approval(path, capability="fs.read")) is False
    if granted:
        same = forms("fs.write", path) == forms("fs.write", other)
        assert allows(authority(asking), path, approval(other)) is same


@pytest.mark.parametrize(
    ("capability", "pattern", "target"),
    [
        ("fs.read", "/ws/**", "/ws/x/../a"),
        ("fs.write", "/ws/**", "/ws//a"),
        ("tool.call", "terminal/*", "terminal/sh"),
        ("net.fetch", "HTTPS://H.example:443/**", "https://h.example/a"),
    ],
)
def test_each_capability_has_its_own_kind_of_pattern(
    capability: str, pattern: str, target: str
) -> None:
    """Patterns and targets are brought into the form of the capability behind."""
    held = authority(lease({f"{ASK}{capability}": [pattern]}))
    with pytest.raises(ApprovalNeeded, match="needs the approval of a person") as caught:
        held.check(capability, target, now=NOW)
    assert caught.value.details == {"capability": capability, "target": target}
    agreed = Approval(capability=capability, targets=[target], by="alice")
    held.check(capability, target, now=NOW, approvals=[agreed])


def test_where_a_link_leads_is_not_approved_with_its_name() -> None:
    """The real path of an approved one has to be allowed by itself."""
    held = authority(lease({f"{ASK}fs.write": ["/ws/**"], "fs.write": ["/free/**"]}))
    once = approval("/ws/link")
    held.check("fs.write", "/ws/link", now=NOW, also=["/free/file"], approvals=[once])
    with pytest.raises(PermissionDenied) as caught:
        held.check("fs.write", "/ws/link", now=NOW, also=["/ws/other"], approvals=[once])
    assert "/ws/other" not in str(caught.value.payload())


def test_expiry_and_budget_come_first() -> None:
    """An approval helps neither an expired lease nor a budget that is used up."""
    asking = {f"{ASK}fs.write": ["/ws/**"]}
    held = authority(lease(asking), approval("/ws/a"), deadline=NOW)
    with pytest.raises(LeaseExpired):
        held.check("fs.write", "/ws/a", now=NOW)
    poor = authority(lease({**asking, "cost.budget": ["USD:1"]}), approval("/ws/a"))
    poor.budget.charge("USD", Decimal(1))
    with pytest.raises(BudgetExhausted):
        poor.check("fs.write", "/ws/a", now=NOW)


def test_nobody_is_asked_for_reserved_paths() -> None:
    """What no lease opens, no approval opens."""
    held = authority(lease({f"{ASK}fs.write": ["/**"]}))
    with pytest.raises(PermissionDenied, match="no lease allows") as caught:
        held.check("fs.write", "/secret/key", now=NOW)
    assert not isinstance(caught.value, ApprovalNeeded)


def test_what_nobody_can_be_asked_for() -> None:
    """A lease that asks for anything else than the five capabilities is told to be idle."""
    asking = lease({f"{ASK}model.use": ["m/*"], f"{ASK}fs.read": ["ws/*"]})
    assert asking.idle() == (
        f"{ASK}model.use 'm/*' never matches: people can only be asked for {', '.join(ASKABLE)}; "
        f"{ASK}fs.read 'ws/*' never matches: paths are absolute: begin with / or **/"
    )
    with pytest.raises(PermissionDenied) as caught:
        authority(asking).check("model.use", "m/a", now=NOW)
    assert not isinstance(caught.value, ApprovalNeeded)


@given(child=GRANTS, parent=GRANTS, name=st.sampled_from(["fs.write", f"{ASK}fs.write"]))
def test_a_childs_conditions_lie_within_its_parents(
    child: list[str], parent: list[str], name: str
) -> None:
    """Delegation proves what a child may ask for as it proves what a child may do."""
    asking = lease({f"{ASK}fs.write": child})
    doing = lease({"fs.write": child})

    def fits(within: Lease, wanted: Lease) -> bool:
        with suppress(LeaseSubsetViolation):
            narrowed(wanted, within, None)
            return True
        return False

    plain = fits(lease({"fs.write": parent}), doing)
    assert fits(lease({name: parent}), asking) is plain
    if name.startswith(ASK) and child:
        assert not fits(lease({name: parent}), doing)


def test_a_ceiling_bounds_what_may_be_asked_for() -> None:
    """A principal can neither do nor ask for what is beyond its ceiling."""
    ceiling = Ceiling(lease=lease({"fs.write": ["/srv/**"]}))
    inside = lease({f"{ASK}fs.write": ["/srv/x/**"]})
    assert ceiling.cap(inside, now=0).grants == inside.grants
    with pytest.raises(PermissionDenied):
        ceiling.cap(lease({f"{ASK}fs.write": ["/**"]}), now=0)
