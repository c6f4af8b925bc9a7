"""The engine that lives and dies with the process, with the same rules as any other."""

from __future__ import annotations

from arcp_trio.store.memory.engine import MemoryStore

__all__ = ["MemoryStore"]
