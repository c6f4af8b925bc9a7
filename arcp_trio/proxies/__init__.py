"""Agents that run elsewhere: their jobs are passed on, and what comes back is passed through."""
