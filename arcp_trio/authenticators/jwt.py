"""Signed tokens (RFC 7519), checked with the keys of whoever issues them."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

try:
    import jwt
except ImportError as error:
    raise ImportError("JwtAuth needs PyJWT: pip install 'arcp-trio[jwt]'", name="jwt") from error

from arcp_trio.authenticators.keyfile import KeyFile
from arcp_trio.authenticators.keys import ALGORITHMS, SHARED, KeySource, OneKey
from arcp_trio.authenticators.keyurl import KeyUrl

MOST_TOKEN_CHARS: Final = 16 * 1024
MOST_PRINCIPAL_CHARS: Final = 255
"""What OpenID Connect allows for a subject."""

# Base64 without padding: each token has one spelling.
_TOKEN: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)

log = logging.getLogger(__name__)


class _NotGoodError(Exception):
    """What is wrong with a token, in words of ours: its own are not to be logged."""


class JwtAuth:
    """Takes a token that is signed, for this audience and not expired; answers with its subject.

    Of what is wrong with another one the log tells at level info. The client learns nothing.
    """

    def __init__(
        self,
        *,
        algorithms: Iterable[str],
        audience: str,
        key: str | bytes | None = None,
        jwks: str | PathLike[str] | None = None,
        issuer: str | None = None,
        leeway: float = 10.0,
        principal_claim: str = "sub",
    ) -> None:
        """Give either `key` or `jwks`.

        Args:
            algorithms: those that are accepted, whatever a token says: HS*, or any of RS*, PS*,
                ES* and EdDSA.
            audience: whom a token must be for; it may be for others too.
            key: a public key in PEM, or for HS* the secret.
            jwks: the issuer's set of public keys, as a file, which is read again when it changes,
                or as an https URL. Plain http only on this machine.
            issuer: who must have issued a token, if several share the keys.
            leeway: seconds by which the issuer's clock may be off.
            principal_claim: what in a token is its principal.

        Raises:
            ValueError: tokens could not be told from forged ones in this way.
            OSError: the file cannot be read.
        """
        self._algorithms = _checked_algorithms(algorithms)
        if not (audience and principal_claim) or issuer == "":
            raise ValueError("audience, issuer and principal_claim must not be empty")
        if not 0 <= leeway < math.inf:
            raise ValueError("leeway must be a number of seconds, 0 or more")
        self._keys = _key_source(key, jwks, self._algorithms)
        self._audience = audience
        self._issuer = issuer
        self._leeway = leeway
        self._claim = principal_claim

    async def __call__(self, token: str) -> str | None:
        """Return the token's principal, or None if it is not good.

        Raises:
            InternalError: the keys cannot be had.
        """
        try:
            return self._principal(await self._claims(token))
        except _NotGoodError as error:
            log.info("signed token not good", extra={"why": str(error)})
        except jwt.PyJWTError as error:
            log.info("signed token not good", extra={"why": _in_words(error)})
        return None

    async def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > MOST_TOKEN_CHARS or not _TOKEN.fullmatch(token):
            raise _NotGoodError("it has not the form of one")
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._algorithms:
            raise _NotGoodError("its algorithm is not one of those accepted")
        if "crit" in header:  # RFC 7515 §4.1.11
            raise _NotGoodError("it asks for an extension")
        key = await self._keys.find(algorithm, key_id)
        if key is None:
            raise _NotGoodError("there is no key of that name for its algorithm")
        return jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=self._audience,
            issuer=self._issuer,
            leeway=self._leeway,
            options={"require": ["exp", self._claim]},
        )

    def _principal(self, claims: Mapping[str, object]) -> str:
        principal = claims[self._claim]
        if (
            not isinstance(principal, str)
            or not 0 < len(principal) <= MOST_PRINCIPAL_CHARS
            or not principal.strip()
            or not principal.isprintable()
        ):
            raise _NotGoodError("what it has for a principal cannot be one")
        return principal


def _in_words(error: jwt.PyJWTError) -> str:
    """Name the error. Only of the claims that we ask for is it known that its text is harmless."""
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"it has no {error.claim}"
    return type(error).__name__


def _checked_algorithms(algorithms: Iterable[str]) -> tuple[str, ...]:
    chosen = tuple(algorithms)
    if not chosen or not set(chosen) <= set(ALGORITHMS):
        raise ValueError(f"algorithms must be some of {', '.join(ALGORITHMS)}")
    # A public key that also serves as a secret would let everybody sign.
    if 0 < sum(name in SHARED for name in chosen) < len(chosen):
        raise ValueError("algorithms of a shared secret, HS*, and others do not go together")
    return chosen


def _key_source(
    key: str | bytes | None, jwks: str | PathLike[str] | None, algorithms: tuple[str, ...]
) -> KeySource:
    if (key is None) == (jwks is None):
        raise ValueError("give either a key or jwks")
    if key is not None:
        return OneKey(key, algorithms)
    assert jwks is not None
    if set(algorithms) & set(SHARED):
        raise ValueError("a set of keys is public: it has none for algorithms of a shared secret")
    where = fspath(jwks)
    if "://" in where:
        return KeyUrl(where, algorithms)
    return KeyFile(Path(where), algorithms)
