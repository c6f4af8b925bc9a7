"""The fixtures `arcp_runtime` and `arcp_client` of the package, and sessions for a recorder."""

from __future__ import annotations

import pytest

from arcp_trio.testing.fixtures import arcp_client, arcp_runtime
from tests.testing.wire import Wire

__all__ = ["arcp_client", "arcp_runtime"]


@pytest.fixture
def wire() -> Wire:
    """Return a session that has been welcomed and has seen no other frame."""
    wire = Wire()
    wire.see(wire.welcome())
    return wire


@pytest.fixture
def running(wire: Wire) -> Wire:
    """Return a session that has seen the acceptance of one job and its first two events."""
    wire.see(wire.accepted(), wire.event(1), wire.event(2))
    return wire
