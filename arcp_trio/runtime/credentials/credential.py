"""A credential as a job has it and as its client is told of it (§9.8.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs

from arcp_trio.wire.json import Json, JsonObject, dumps
from arcp_trio.wire.timestamps import parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from arcp_trio.runtime.credentials.provisioner import Issued


@attrs.frozen(kw_only=True)
class Credential:
    """A credential of the job, as it is now (§9.8.1). Present it to its endpoint only."""

    id: str
    scheme: str
    value: str = attrs.field(repr=False)
    endpoint: str
    profile: str | None = None
    constraints: Mapping[str, Json] = attrs.field(factory=dict[str, Json])
    """The bounds that the upstream itself enforces."""

    def wire(self) -> JsonObject:
        """Return all of it, for the job's submitter."""
        return {**self.public(), "value": self.value}

    def public(self) -> JsonObject:
        """Return all but the value, to be stored."""
        fields: JsonObject = {
            "id": self.id,
            "scheme": self.scheme,
            "endpoint": self.endpoint,
            "profile": self.profile,
            "constraints": dict(self.constraints) or None,
        }
        return {name: value for name, value in fields.items() if value is not None}


def credential_of(issued: Issued, credential_id: str, expires_at: str | None) -> Credential:
    """Make a credential of what was minted for a lease that expires at `expires_at`.

    Raises:
        ValueError: it cannot be sent to a client.
    """
    credential = Credential(
        id=credential_id,
        scheme=issued.scheme,
        value=issued.value,
        endpoint=issued.endpoint,
        profile=issued.profile,
        constraints=_constraints(issued, expires_at),
    )
    dumps(credential.wire())
    return credential


def _constraints(issued: Issued, expires_at: str | None) -> JsonObject:
    """Return the constraints as the upstream named them, but a time in UTC (§9.5)."""
    constraints: JsonObject = {
        name: value for name, value in issued.constraints.items() if value is not None
    }
    if "expires_at" in constraints:
        told = str(constraints["expires_at"])
        moment = parse_rfc3339(told)
        if expires_at is not None and moment == parse_rfc3339(expires_at):
            constraints["expires_at"] = expires_at
        elif not told.endswith("Z"):
            constraints["expires_at"] = rfc3339(moment)
    return constraints
