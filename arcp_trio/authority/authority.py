"""The one check that authorises a job's operations (§9.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from arcp_trio.authority.approvals import ASK, ASKABLE, Approval
from arcp_trio.authority.budget import Budget
from arcp_trio.authority.lease import BUDGET, MODEL, Lease, is_capability
from arcp_trio.authority.patterns import FILES
from arcp_trio.authority.targets import forms
from arcp_trio.wire.errors import (
    ApprovalNeeded,
    BudgetExhausted,
    LeaseExpired,
    PermissionDenied,
    clip,
)

MOST_TOLD: Final = 1000
"""The characters of a target that the details of a refusal repeat, at most."""


@attrs.define(eq=False, kw_only=True)
class Authority:
    """What a running job may do: its lease, what is left of its budget, and its deadline."""

    lease: Lease
    budget: Budget
    deadline: float | None = None
    """When the lease expires, on the monotonic clock of `check`'s `now` (§14); None: never."""
    any_model: bool = False
    """The deployment's policy (§9.7): a lease that does not name `model.use` allows any model."""
    reserved: Sequence[str] = ()
    """Paths that no lease opens, with all that is below them."""
    approvals: list[Approval] = attrs.field(factory=list[Approval])
    """What people have decided for as long as the job runs; the last decision counts."""

    def check(
        self,
        capability: str,
        target: str,
        *,
        now: float,
        also: Sequence[str] = (),
        approvals: Sequence[Approval] = (),
    ) -> None:
        """Return if the operation is allowed now; raise if it is not.

        Args:
            also: what else the target stands for, such as the real path to which a link leads.
            approvals: what people have decided for this operation alone.

        Raises:
            LeaseExpired: the deadline has passed.
            BudgetExhausted: the budget is used up; raised if the lease has not expired.
            ApprovalNeeded: the lease allows the operation only if a person agrees to it.
            PermissionDenied: the lease does not allow the operation; raised if the budget is left.
                Its details are the capability and the target that a lease would have to name.
        """
        if self.deadline is not None and now >= self.deadline:
            raise LeaseExpired(f"lease expired at {self.lease.expires_at}")
        currency = self.budget.exhausted()
        if currency is not None:
            raise BudgetExhausted(f"{currency} budget exhausted")
        if not is_capability(capability) or capability == BUDGET:
            raise PermissionDenied(f"no such capability: {clip(repr(capability))}")
        named = clip(repr(target))
        known = {"capability": capability, "target": target} if len(target) <= MOST_TOLD else None
        approvals = [*self.approvals, *approvals]
        self._check_target(capability, target, approvals, named, known)
        for each in also:
            # The agent may not learn where a link leads, and nobody was asked for that.
            self._check_target(capability, each, approvals, f"what {named} stands for", None)

    def _check_target(
        self,
        capability: str,
        target: str,
        approvals: Sequence[Approval],
        named: str,
        details: Mapping[str, str] | None,
    ) -> None:
        try:
            covered = forms(capability, target)
        except ValueError as error:
            raise PermissionDenied(f"{capability} of {named}: {error}") from None
        if capability in FILES and any(map(self._is_reserved, covered)):
            raise PermissionDenied(f"no lease allows {capability} of {named}")
        if capability == MODEL and self.any_model and not self.lease.names(MODEL):
            return
        if self.lease.allows(capability, covered):
            return
        if capability not in ASKABLE or not self.lease.allows(f"{ASK}{capability}", covered):
            raise PermissionDenied(
                f"the lease does not allow {capability} of {named}", details=details
            )
        decided = [each for each in approvals if each.covers(capability, covered)]
        if not decided:
            raise ApprovalNeeded(
                f"{capability} of {named} needs the approval of a person:"
                " job.authorize_or_ask asks for it",
                details=details,
            )
        if not decided[-1].allowed:
            by = clip(repr(decided[-1].by))
            raise PermissionDenied(f"{by} has denied {capability} of {named} for this job")

    def _is_reserved(self, path: str) -> bool:
        return any(path == each or path.startswith(f"{each}/") for each in self.reserved)
