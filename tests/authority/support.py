"""Leases and budgets for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from arcp_trio.authority.budget import Budget
from arcp_trio.authority.lease import Lease
from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.timestamps import rfc3339

NOW = 1_778_700_000.0
SOON, LATER = rfc3339(NOW + 60), rfc3339(NOW + 3600)


def lease(request: Mapping[str, Any] | None = None, expires_at: Any = None) -> Lease:
    """Read a lease."""
    return Lease.read(request, expires_at, now=NOW)


def refusal(request: Any, expires_at: Any = None) -> str:
    """Return the message with which a lease is refused."""
    with pytest.raises(InvalidRequest) as caught:
        lease(request, expires_at)
    return caught.value.message


def budget(*amounts: str) -> Lease:
    """Read a lease of money."""
    return lease({"cost.budget": list(amounts)})


def left(budget: Budget) -> str:
    """Return what is left of the dollars, as text."""
    return f"{budget.remaining['USD']:f}"
