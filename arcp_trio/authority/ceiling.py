"""Ceilings: the most that a deployment leases to a principal, whatever its clients ask for.

The rule has two halves. Patterns are refused: a request of which any pattern is not covered by the
ceiling's leads to no job, and the refusal names the pattern. Money and time are reduced: a job gets
the smaller amount of each currency and the earlier expiry, even if it asked for neither, and its
acceptance tells the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import attrs

from arcp_trio.authority.lease import MAX_PROBLEMS, Lease, listed
from arcp_trio.authority.narrowing import wider_grants, with_models_of
from arcp_trio.wire.errors import PermissionDenied
from arcp_trio.wire.timestamps import parse_utc, rfc3339


@attrs.frozen(kw_only=True)
class Ceiling:
    """The most that a lease may have: `Ceiling(lease=Lease.read({"fs.read": ["/srv/**"]}))`."""

    lease: Lease
    """Its patterns cover those of every lease, and its budget is the most of each job."""
    expires_in: float | None = None
    """Seconds from a job's acceptance to the expiry of its lease, at most; None: not bounded."""

    def __attrs_post_init__(self) -> None:
        if self.expires_in is not None and not self.expires_in > 0:
            raise ValueError("expires_in must be above 0")

    def cap(self, asked: Lease, *, now: float, any_model: bool = False) -> Lease:
        """Return what a job gets of the lease that it asks for.

        Args:
            now: the time of day, in Unix seconds.
            any_model: the deployment's policy, as in `Authority`.

        Raises:
            PermissionDenied: a pattern is beyond the ceiling.
        """
        excess = [*wider_grants(asked, self.lease, any_model=any_model)]
        if excess:
            raise PermissionDenied(
                "beyond what this principal may lease: " + listed([words for words, _ in excess]),
                details={"beyond": [details for _, details in excess[:MAX_PROBLEMS]]},
            )
        lease = attrs.evolve(
            asked,
            grants=with_models_of(asked, self.lease),
            budget=_smaller(asked.budget, self.lease.budget),
        )
        lease = _expiring(lease, self.lease.expires_at)
        return (
            lease if self.expires_in is None else _expiring(lease, rfc3339(now + self.expires_in))
        )


def _smaller(
    asked: Mapping[str, Decimal] | None, most: Mapping[str, Decimal] | None
) -> Mapping[str, Decimal] | None:
    if asked is None or most is None:
        return asked if most is None else most
    return {**asked, **{each: min(asked.get(each, left), left) for each, left in most.items()}}


def _expiring(lease: Lease, expires_at: str | None) -> Lease:
    if expires_at is None:
        return lease
    expires = parse_utc(expires_at)
    if lease.expires is not None and lease.expires <= expires:
        return lease
    return attrs.evolve(lease, expires_at=expires_at, expires=expires)
