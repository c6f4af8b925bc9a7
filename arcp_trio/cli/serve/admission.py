"""Which clients `serve` lets in: those with one of its tokens, or with a token signed for it."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from arcp_trio.cli.errors import CommandError, reason
from arcp_trio.cli.serve.options import ServeOptions
from arcp_trio.cli.serve.tokens import LOCAL, Tokens, gather, given_tokens, make_token
from arcp_trio.plainfile import read_plain
from arcp_trio.runtime.access import Principal, StaticTokens

if TYPE_CHECKING:
    from arcp_trio.authenticators.jwt import JwtAuth

_TAKEN: Final = "its principal has a static token; rename one of the two"

log = logging.getLogger(__name__)


class Admission:
    """An authenticator whose tokens can be gathered again while it is in use.

    A principal that has a token of `serve` is nobody else: a signed token for it is refused.
    """

    def __init__(self, options: ServeOptions) -> None:
        """Take the tokens that are given; write nothing to the disk.

        Raises:
            CommandError: the tokens cannot be read, or signed tokens cannot be checked.
        """
        self._signed = _signed(options)
        given = given_tokens(options, os.environ)
        self._lacks_token = given is None
        self._use(given or Tokens(principals={}))

    async def __call__(self, token: str) -> Principal | None:
        """Return the principal of a token, or None if the token is not accepted."""
        principal = await self._static(token)
        if principal is None and self._signed is not None:
            principal = await self._signed(token)
            if principal in self._named:
                log.info("signed token refused", extra={"why": _TAKEN})
                return None
        return principal

    async def still_good(self, principal: Principal) -> bool:
        """Return whether the principal's token would be accepted now."""
        if principal in self._named or self._signed is None:
            return await self._static.still_good(principal)
        return await self._signed.still_good(principal)

    def complete(self, options: ServeOptions) -> None:
        """Make a token if none is given.

        Raises:
            CommandError: the token cannot be kept, or other nodes would not take it.
        """
        if self._lacks_token:
            self._use(make_token(options))

    def gather_again(self, options: ServeOptions) -> None:
        """Accept the tokens that there are now, and no others.

        Raises:
            CommandError: they cannot be read; the tokens before are still accepted.
        """
        made, short = self.made, self._short
        self._use(gather(options, os.environ, made=made, read=read_plain))
        if (self.made, self._short) != (made, short):
            self.show()

    def show(self) -> None:
        """Print the token that was made, if there is one; warn of tokens that can be guessed."""
        if self._short:
            principals = ", ".join(self._short)
            log.warning("short tokens can be guessed", extra={"principals": principals})
        if self.made is not None:
            with suppress(OSError):  # standard error is closed, but `serve` goes on
                # One write, because the thread of the log writes its lines to the same place.
                sys.stderr.write(f"token for {LOCAL}: {self.made}\n")
                sys.stderr.flush()

    def _use(self, tokens: Tokens) -> None:
        self.made = tokens.made
        self._short = tokens.short
        self._static = StaticTokens(hashed=tokens.principals)
        self._named = frozenset(tokens.principals.values())


def _signed(options: ServeOptions) -> JwtAuth | None:
    keys = options.jwt_keys
    if keys is None:
        if options.jwt_algorithm or options.jwt_audience or options.jwt_issuer:
            raise CommandError("signed tokens need their keys; give --jwt-keys, too")
        return None
    if options.jwt_audience is None or not options.jwt_algorithm:
        raise CommandError("--jwt-keys needs --jwt-audience, and --jwt-algorithm such as RS256")
    try:
        # Imported here, because the extra `jwt` may not be installed.
        from arcp_trio.authenticators.jwt import JwtAuth  # noqa: PLC0415

        return JwtAuth(
            jwks=keys,
            algorithms=options.jwt_algorithm,
            audience=options.jwt_audience,
            issuer=options.jwt_issuer,
        )
    except ImportError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"cannot read the keys in {keys}: {reason(error)}") from error
    except ValueError as error:
        raise CommandError(f"signed tokens cannot be checked with {keys}: {error}") from error
