"""Agents that are other ARCP runtimes: jobs are forwarded to them, and events passed back."""
