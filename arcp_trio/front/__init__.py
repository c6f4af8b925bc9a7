"""The listening socket in front of a runtime."""

from __future__ import annotations

from arcp_trio.front.serve import serve

__all__ = ["serve"]
