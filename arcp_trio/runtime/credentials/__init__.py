"""Credentials: minting them for jobs, and revoking them."""
