"""Agents in worker processes (`process=True`)."""
