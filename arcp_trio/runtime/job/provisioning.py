"""A job's credentials: what is ordered for it, before its acceptance and at a rotation (§9.8)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from arcp_trio.runtime.credentials.provisioner import CredentialOrder
from arcp_trio.runtime.credentials.wallet import Wallet
from arcp_trio.runtime.job.events import add_event_with_holes
from arcp_trio.wire.errors import ArcpError, InternalError
from arcp_trio.wire.ids import new_id

if TYPE_CHECKING:
    from arcp_trio.runtime.credentials.credential import Credential
    from arcp_trio.runtime.job.job import Job

ROTATED: Final = "credential_rotated"
"""The phase of the `status` event that announces another value (§9.8.2)."""


def wallet_for(job: Job) -> Wallet | None:
    """Return an empty wallet for a job; None if it wants no credentials, or nothing issues any."""
    revoker = job.jobs.revoker
    if revoker.provisioner is None or not job.spec.wants_credentials:
        return None
    return Wallet(
        revoker,
        revoker.provisioner,
        order=partial(_order, job),
        announce=partial(_announce, job),
        refuse_if_ending=job.refuse_if_ending,
        issue_seconds=job.core.limits.issue_seconds,
        facts=job.facts,
    )


async def provide(job: Job) -> None:
    """Have a drafted job's credentials issued, before the job is accepted (§9.8.2).

    A job without a wallet gets none, and there is no checkpoint.

    Raises:
        ArcpError: there are no credentials, or the job must no longer begin.
    """
    if job.wallet is None:
        return
    await job.wallet.issue()
    if job.core.closing:
        raise InternalError("the runtime is shutting down")
    job.refuse_if_ending()


def announce_all(job: Job) -> None:
    """Tell the submitter of credentials that were minted anew, after a restart."""
    for credential in [] if job.wallet is None else job.wallet.all():
        _announce(job, credential)


def explained(job: Job, error: BaseException) -> ArcpError | None:
    """Return the job's error for one of an endpoint of its credentials (§9.6), or None."""
    return None if job.wallet is None else job.wallet.explain(error)


def _order(job: Job) -> CredentialOrder:
    """Make an order within what the job may still do and spend."""
    authority, lease = job.authority, job.authority.lease
    seconds_left = None
    if authority.deadline is not None:
        end = authority.deadline - job.core.limits.lease_grace_seconds
        seconds_left = max(0.0, end - trio.current_time())
    return CredentialOrder(
        id=new_id("order_"),
        job_id=job.id,
        principal=job.principal,
        agent=job.agent.ref,
        trace_id=job.trace_id,
        # A capability that is named without patterns differs from one that is not named.
        lease={**dict.fromkeys(lease.grants, ()), **lease.wire()},
        budget=authority.budget.available() or {},
        expires_at=lease.expires_at,
        seconds_left=seconds_left,
    )


def _announce(job: Job, credential: Credential) -> None:
    """Emit that a credential has another value, which is filled in as it is sent (§9.8.2)."""
    add_event_with_holes(job, "status", {"phase": ROTATED, "id": credential.id})
