"""Credentials: minted for jobs, kept in their wallets, and revoked."""
