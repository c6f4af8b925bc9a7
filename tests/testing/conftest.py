"""The fixtures under test are those for users."""

from __future__ import annotations

from arcp_trio.testing.fixtures import arcp_client, arcp_runtime

__all__ = ["arcp_client", "arcp_runtime"]
