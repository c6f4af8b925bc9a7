"""JSON Web Tokens (RFC 7519), checked with the keys of their issuer."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from arcp_trio.extras import how_to_install

try:
    import jwt
except ImportError as error:
    raise ImportError(f"JwtAuth needs PyJWT: {how_to_install('jwt')}", name="jwt") from error

from arcp_trio.authenticators.keyfile import KeyFile
from arcp_trio.authenticators.keys import ALGORITHMS, SHARED, KeySource, OneKey, fingerprint
from arcp_trio.authenticators.keyurl import KeyUrl
from arcp_trio.runtime.access import Principal

MOST_TOKEN_CHARS: Final = 16 * 1024
MOST_PRINCIPAL_CHARS: Final = 255
"""The longest subject that OpenID Connect allows (Core §2)."""

# Three parts in Base64 without padding, so that each token has one spelling (RFC 7515 §2).
_TOKEN: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)

_FOREVER: Final = 253_402_300_799.0
"""The end of the year 9999: integers in JSON have no bound, and floats have."""

log = logging.getLogger(__name__)


class _NotGoodError(Exception):
    """A token is refused, for a reason that quotes nothing of it and so can be logged."""


class JwtAuth:
    """Accepts JSON Web Tokens of one issuer: signed, for this audience, and not expired.

    The principal is a token's subject, until the token expires or its key is no longer the
    issuer's. The log says at level info why a token was refused; the client is not told.
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
            algorithms: the algorithms that are accepted, whatever a token's header says: HS*, or
                any of RS*, PS*, ES* and EdDSA.
            audience: a value that the `aud` of a token must contain.
            key: a public key in PEM, or for HS* the secret.
            jwks: the issuer's set of public keys: a file, which is read again when it changes, or
                an https URL. Plain http is for URLs of this machine only.
            issuer: the required `iss` of a token, for issuers that share their keys.
            leeway: seconds by which the issuer's clock may be off.
            principal_claim: the claim whose value is the principal.

        Raises:
            ValueError: these options could not tell good tokens from forged ones.
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

    async def __call__(self, token: str) -> Principal | None:
        """Return the token's principal, or None if the token is refused.

        Raises:
            InternalError: the issuer's keys are not available.
        """
        try:
            return await self._check(token)
        except _NotGoodError as error:
            log.info("signed token refused", extra={"why": str(error)})
        except jwt.PyJWTError as error:
            log.info("signed token refused", extra={"why": _in_words(error)})
        return None

    async def still_good(self, principal: Principal) -> bool:
        """Return whether the key of the principal's token is still one of the issuer's.

        Raises:
            InternalError: the issuer's keys are not available.
        """
        algorithm, _, rest = principal.fingerprint.partition(" ")
        mark, _, key_id = rest.partition(" ")
        if algorithm not in self._algorithms:
            return False
        key = await self._keys.find(algorithm, key_id or None)
        return key is not None and fingerprint(key) == mark

    async def _check(self, token: str) -> Principal:
        if len(token) > MOST_TOKEN_CHARS or not _TOKEN.fullmatch(token):
            raise _NotGoodError("it does not have the form of a token")
        header = jwt.get_unverified_header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._algorithms:
            raise _NotGoodError("its algorithm is not accepted")
        if "crit" in header:  # an extension that must be understood (RFC 7515 §4.1.11)
            raise _NotGoodError("it asks for an extension")
        key = await self._keys.find(algorithm, key_id)
        if key is None:
            raise _NotGoodError("there is no key with its id for its algorithm")
        claims: Mapping[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=self._audience,
            issuer=self._issuer,
            leeway=self._leeway,
            options={"require": ["exp", self._claim]},
        )
        return Principal(
            self._name(claims),
            expires_at=min(int(claims["exp"]), _FOREVER) + self._leeway,
            fingerprint=f"{algorithm} {fingerprint(key)} {key_id or ''}",
        )

    def _name(self, claims: Mapping[str, object]) -> str:
        principal = claims[self._claim]
        if (
            not isinstance(principal, str)
            or not 0 < len(principal) <= MOST_PRINCIPAL_CHARS
            or not principal.strip()
            or not principal.isprintable()
        ):
            raise _NotGoodError("its principal is empty, too long, or not printable text")
        return principal


def _in_words(error: jwt.PyJWTError) -> str:
    """Return the kind of an error; its text may quote the token, except for a missing claim."""
    if isinstance(error, jwt.MissingRequiredClaimError):
        return f"it has no {error.claim}"
    return type(error).__name__


def _checked_algorithms(algorithms: Iterable[str]) -> tuple[str, ...]:
    chosen = tuple(algorithms)
    if not chosen or not set(chosen) <= set(ALGORITHMS):
        raise ValueError(f"algorithms must be some of {', '.join(ALGORITHMS)}")
    # A public key that is also accepted as a shared secret lets anybody sign (RFC 8725 §2.1).
    if 0 < sum(name in SHARED for name in chosen) < len(chosen):
        raise ValueError("algorithms of a shared secret, HS*, cannot be mixed with others")
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
        raise ValueError("a set of keys is public, and HS* needs a shared secret")
    where = fspath(jwks)
    if "://" in where:
        return KeyUrl(where, algorithms)
    return KeyFile(Path(where), algorithms)
