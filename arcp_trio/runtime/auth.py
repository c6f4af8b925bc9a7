"""Who is it? A bearer token in, a principal out (§6.1)."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping

Authenticator = Callable[[str], Awaitable[str | None]]
"""Takes a bearer token and returns its principal, or None for a token that is not good."""


class StaticTokens:
    """A fixed set of tokens, hashed when they are read and compared in constant time."""

    def __init__(self, principals: Mapping[str, str]) -> None:
        """`principals` maps each token to the principal it stands for."""
        for token, principal in principals.items():
            if not token.strip() or not principal.strip():
                raise ValueError("tokens and principals must not be blank")
        self._principals = [(_digest(token), principal) for token, principal in principals.items()]

    async def __call__(self, token: str) -> str | None:
        """Compare against every token, so that the time taken tells nothing."""
        presented = _digest(token)
        found: str | None = None
        for digest, principal in self._principals:
            if hmac.compare_digest(digest, presented):
                found = principal
        return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
