"""A runtime, library and client for ARCP 1.1, the Agent Runtime Control Protocol, built on Trio."""

from __future__ import annotations

__version__ = "0.1.0"
