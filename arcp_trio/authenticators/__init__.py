"""Authenticators that need more than the runtime itself; each is an extra of its own."""
