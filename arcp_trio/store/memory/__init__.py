"""The engine that keeps everything in memory. Modules with an underscore are internal."""

from __future__ import annotations

from arcp_trio.store.memory.engine import MemoryStore

__all__ = ["MemoryStore"]
