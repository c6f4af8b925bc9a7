"""Narrowing: the lease of a delegated job lies within its parent's (§9.4), or is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import TypeAlias

import attrs

from arcp_trio.authority.approvals import behind
from arcp_trio.authority.lease import BUDGET, MAX_PROBLEMS, MODEL, Lease, listed
from arcp_trio.authority.patterns import Pattern
from arcp_trio.authority.subset import uncovered
from arcp_trio.wire.errors import LeaseSubsetViolation, clip
from arcp_trio.wire.json import JsonLike

Excess: TypeAlias = tuple[str, dict[str, JsonLike]]
"""What exceeds another lease: in words, and as details of the error."""


def narrowed(
    child: Lease,
    parent: Lease,
    available: Mapping[str, Decimal] | None,
    *,
    any_model: bool = False,
) -> Lease:
    """Return the effective lease of a delegated job (§9.4).

    Args:
        available: what the parent's `Budget` has for a new child.
        any_model: the deployment's policy, as in `Authority`: with it, a parent that does not name
            `model.use` covers all models.

    Raises:
        LeaseSubsetViolation: names what exceeds the parent's lease.
    """
    excess = [
        *wider_grants(child, parent, any_model=any_model),
        *_greater_amounts(child, parent.budget if available is None else available),
        *_later_expiry(child, parent),
    ]
    if excess:
        raise LeaseSubsetViolation(
            "beyond the parent's lease: " + listed([words for words, _ in excess]),
            details={"beyond": [details for _, details in excess[:MAX_PROBLEMS]]},
        )
    grants = with_models_of(child, parent)
    if parent.sandbox:
        child = attrs.evolve(child, sandbox=True)
    if child.expires is None:
        child = attrs.evolve(child, expires_at=parent.expires_at, expires=parent.expires)
    return attrs.evolve(child, grants=grants)


def with_models_of(child: Lease, parent: Lease) -> Mapping[str, tuple[Pattern, ...]]:
    """Return the child's grants; `any_model` gives it no model if its parent names `model.use`."""
    if parent.names(MODEL) and not child.names(MODEL):
        return {**child.grants, MODEL: ()}
    return child.grants


def wider_grants(child: Lease, parent: Lease, *, any_model: bool) -> Iterator[Excess]:
    """Yield the capabilities of which the child has more than the parent, each with a pattern.

    What the parent may do at once, the child may do if a person agrees.
    """
    for capability, patterns in child.grants.items():
        if capability == MODEL and any_model and not parent.names(MODEL):
            continue
        names = {capability, behind(capability)}
        pattern = uncovered(patterns, [p for name in names for p in parent.grants.get(name, ())])
        if pattern is not None:
            yield (
                f"{capability} {clip(repr(pattern.text))}",
                {"capability": capability, "pattern": pattern.text},
            )


def _greater_amounts(child: Lease, available: Mapping[str, Decimal] | None) -> Iterator[Excess]:
    if child.budget is None or available is None:
        return
    for currency, asked in child.budget.items():
        left = available.get(currency)
        if left is None or asked > left:
            has = "none" if left is None else f"{left:f}"
            yield (
                f"{BUDGET} {currency}:{asked:f} of {has} available",
                {
                    "capability": BUDGET,
                    "currency": currency,
                    "asked": f"{asked:f}",
                    "available": None if left is None else f"{left:f}",
                },
            )


def _later_expiry(child: Lease, parent: Lease) -> Iterator[Excess]:
    if child.expires is None or parent.expires is None or child.expires <= parent.expires:
        return
    yield (
        f"expires_at {child.expires_at} is later than {parent.expires_at}",
        {"expires_at": child.expires_at, "available": parent.expires_at},
    )
