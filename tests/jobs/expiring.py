"""Leases that expire, and how a job looks that its lease has ended."""

from __future__ import annotations

from arcp_trio.testing.frames import Frame
from arcp_trio.wire.json import Json, JsonObject

EXPIRED = "LEASE_EXPIRED"
GRACE = 0.25
"""Seconds after `expires_at` in which a lease still counts, as clocks differ a little."""

LEASE: JsonObject = {"tool.call": ["*"], "agent.delegate": ["*"], "cost.budget": ["USD:1"]}


def until(expires_at: Json, lease: JsonObject = LEASE) -> JsonObject:
    """Return the fields of a submit for a lease that ends at this time."""
    return {"lease_request": lease, "lease_constraints": {"expires_at": expires_at}}


def ended_by_expiry(end: Frame) -> bool:
    """Return whether a terminal is the one of §9.5."""
    said = (end["code"], end["final_status"], end["retryable"])
    return said == (EXPIRED, "error", False)
