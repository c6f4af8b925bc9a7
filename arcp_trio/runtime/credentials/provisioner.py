"""What the runtime needs of a service that mints credentials (§9.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Protocol

import attrs

from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import Json


@attrs.frozen(kw_only=True)
class CredentialOrder:
    """A job's request for credentials, within its lease."""

    id: str
    """Stored before the upstream is called. Give what is minted this name there: then it can be
    found and revoked even if the answer with its value never arrives."""
    job_id: str
    principal: str
    agent: str
    trace_id: str
    lease: Mapping[str, Sequence[str]]
    budget: Mapping[str, Decimal]
    """The job's remaining budget, by currency; empty without `cost.budget`."""
    expires_at: str | None
    """The end of the lease: RFC 3339 in UTC, as in the lease."""
    seconds_left: float | None
    """Until `expires_at`."""


@attrs.frozen(kw_only=True)
class Issued:
    """A credential as it was minted."""

    handle: str
    """The upstream's name for the credential; not a secret."""
    value: str = attrs.field(repr=False)
    endpoint: str
    scheme: str = "bearer"
    profile: str | None = None
    constraints: Mapping[str, Json] = attrs.field(factory=dict[str, Json])
    """The bounds that the upstream itself enforces: `cost.budget`, `model.use`, `expires_at`."""


class CannotRevoke(Exception):  # noqa: N818 - it states a fact
    """The upstream will never revoke the credential; an operator has to do it."""


class Provisioner(Protocol):
    """Mints, rotates and revokes credentials.

    An `ArcpError` of `issue` or `rotate` is a refusal that the client, or the agent, is told. Any
    other exception but `CannotRevoke` is treated as temporary, and logged. Neither may have secrets
    in its text.
    """

    async def issue(self, order: CredentialOrder) -> Sequence[Issued]:
        """Mint what the job needs; return nothing if it needs nothing."""
        ...

    async def rotate(self, order: CredentialOrder, handle: str) -> Sequence[Issued]:
        """Mint a replacement for the credential with this handle, which stays valid for now."""
        ...

    async def revoke(self, order_id: str, handle: str | None) -> None:
        """Make a credential worthless; without a handle, all that the order may have minted.

        Revoking a credential that is revoked already, or was never minted, succeeds.

        Raises:
            CannotRevoke: trying again is of no use.
        """
        ...

    def explain(self, error: Exception) -> ArcpError | None:
        """Return the job's error for an exception from the upstream, as `BudgetExhausted` (§9.6).

        None: the exception has no special meaning, and is treated like any other.
        """
        ...
