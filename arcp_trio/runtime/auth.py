"""Who is it? A bearer token in, a principal out (§6.1)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from arcp_trio.wire.ids import token_digest

Authenticator = Callable[[str], Awaitable[str | None]]
"""Takes a bearer token and returns its principal, or None for a token that is not good."""


_SHA256: Final = re.compile("[0-9a-fA-F]{64}")


class StaticTokens:
    """A fixed set of tokens, known by their hashes and compared in constant time."""

    def __init__(
        self,
        principals: Mapping[str, str] = MappingProxyType({}),
        *,
        hashed: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Say which token stands for which principal.

        Args:
            principals: the principal of each token.
            hashed: the principal of each token that is given by its SHA-256, in hexadecimal. A
                hash hides only what nobody can guess: such tokens must come from a generator.
        """
        if any(not text.strip() for text in (*principals, *principals.values(), *hashed.values())):
            raise ValueError("tokens and principals must not be blank")
        if not all(map(_SHA256.fullmatch, hashed)):
            raise ValueError("a hashed token must be the 64 hexadecimal digits of its SHA-256")
        self._principals = [
            *((bytes.fromhex(digest), principal) for digest, principal in hashed.items()),
            *((token_digest(token), principal) for token, principal in principals.items()),
        ]

    async def __call__(self, token: str) -> str | None:
        """Compare against every token, so that the time taken tells nothing."""
        presented = token_digest(token)
        found: str | None = None
        for digest, principal in self._principals:
            if hmac.compare_digest(digest, presented):
                found = principal
        return found
