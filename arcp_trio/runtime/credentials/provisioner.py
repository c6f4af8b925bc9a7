"""What stands between the runtime and a service that mints credentials (§9.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Protocol

import attrs

from arcp_trio.wire.errors import ArcpError
from arcp_trio.wire.json import Json


@attrs.frozen(kw_only=True)
class CredentialOrder:
    """What a job is to get credentials for, within its lease."""

    id: str
    """Stored before the upstream is called. Give what is minted this name there: then it can be
    found and revoked even if the answer with its value never arrives."""
    job_id: str
    principal: str
    agent: str
    trace_id: str
    lease: Mapping[str, Sequence[str]]
    budget: Mapping[str, Decimal]
    """What the job has left, by currency; empty without `cost.budget`."""
    expires_at: str | None
    """RFC 3339 in UTC, as in the lease."""
    seconds_left: float | None
    """Until then."""


@attrs.frozen(kw_only=True)
class Issued:
    """A credential as it was minted."""

    handle: str
    """What the upstream calls it; no secret."""
    value: str = attrs.field(repr=False)
    endpoint: str
    scheme: str = "bearer"
    profile: str | None = None
    constraints: Mapping[str, Json] = attrs.field(factory=dict[str, Json])
    """What the upstream itself enforces: `cost.budget`, `model.use`, `expires_at`."""


class CannotRevoke(Exception):  # noqa: N818 - a fact to be told
    """The upstream will never revoke it; an operator has to see to that."""


class Provisioner(Protocol):
    """Mints, rotates and revokes credentials. Exceptions are taken for passing trouble.

    They are logged: no secret belongs into their words.
    """

    async def issue(self, order: CredentialOrder) -> Sequence[Issued]:
        """Mint what the job needs; nothing if it needs nothing."""
        ...

    async def rotate(self, order: CredentialOrder, handle: str) -> Sequence[Issued]:
        """Mint a replacement for the one with this handle, which goes on for now."""
        ...

    async def revoke(self, order_id: str, handle: str | None) -> None:
        """Make it worthless; without a handle, all that the order may have minted.

        To revoke what is revoked, or was never minted, is success.

        Raises:
            CannotRevoke: it is no use to try again.
        """
        ...

    def explain(self, error: Exception) -> ArcpError | None:
        """What an exception from the upstream means to the job, as `BudgetExhausted` (§9.6)."""
        ...
