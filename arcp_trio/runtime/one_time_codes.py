"""One-time codes: good once, for a minute, in place of a token that a browser must not be given.

A command line and a browser's history keep what they see. They may see a code: the page exchanges
it for the token that it stands for, and from then on the code is worth nothing. Codes are in the
memory of the node that made them.
"""

from __future__ import annotations

import secrets
from typing import Final

import attrs
import trio

from arcp_trio.runtime.limits import limit_hit
from arcp_trio.wire.ids import token_digest

CODE_PREFIX: Final = "arcp-code."
"""What codes begin with; no authenticator is asked about them."""
CODE_SECONDS: Final = 60.0
"""How long a code is good for, at most."""
MOST_CODES: Final = 8
"""The codes of one principal that can be open at a time."""


@attrs.frozen
class _OpenCode:
    principal: str
    token: str = attrs.field(repr=False)
    until: float
    """On Trio's clock."""


class OneTimeCodes:
    """The codes that one node has made and nobody has exchanged."""

    def __init__(self) -> None:
        self._open: dict[bytes, _OpenCode] = {}

    def make(self, principal: str, token: str, seconds: float) -> str:
        """Return a code that a client of this principal exchanges for the token, once.

        Raises:
            ValueError: the time is not above 0, or is too long.
            InternalError: too many codes of the principal are open.
        """
        if not 0 < seconds <= CODE_SECONDS:
            raise ValueError(f"a code is good for more than 0 and at most {CODE_SECONDS:g} seconds")
        now = trio.current_time()
        self._open = {key: each for key, each in self._open.items() if each.until > now}
        if sum(each.principal == principal for each in self._open.values()) >= MOST_CODES:
            raise limit_hit("one_time_codes", MOST_CODES, what_helps="try again in a minute")
        code = CODE_PREFIX + secrets.token_urlsafe(32)
        self._open[token_digest(code)] = _OpenCode(principal, token, now + seconds)
        return code

    def exchange(self, code: str) -> str | None:
        """Return the token that a code stands for, and forget the code; None if it is not good."""
        # What is looked up is a hash: the time that it takes tells nothing of a code.
        found = self._open.pop(token_digest(code), None)
        if found is None or found.until <= trio.current_time():
            return None
        return found.token
