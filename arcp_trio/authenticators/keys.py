"""The keys that check signatures: a single key, or a key set (RFC 7517)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol, cast

import attrs
import jwt
from jwt.algorithms import get_default_algorithms

from arcp_trio.wire.errors import InvalidRequest
from arcp_trio.wire.json import JsonObject, loads

SHARED: Final = ("HS256", "HS384", "HS512")
"""The algorithms whose key both signs and verifies, and must be kept secret."""

_KINDS: Final[dict[str, tuple[str, tuple[str | None, ...]]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", (None,))),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
"""The key type (`kty`) and the curves (`crv`) of each algorithm's keys."""

ALGORITHMS: Final = (*SHARED, *_KINDS)

MOST_BYTES: Final = 256 * 1024
"""The largest key set that is read; a certificate chain beside each key makes sets large."""

_PUBLIC: Final = frozenset({"kty", "crv", "x", "y", "n", "e"})

_FINGERPRINT_DIGITS: Final = 16
"""Enough to tell keys apart."""

Key = str | bytes | jwt.PyJWK

log = logging.getLogger(__name__)


def fingerprint(key: Key) -> str:
    """Return a digest by which a key is told from others."""
    if isinstance(key, jwt.PyJWK):
        # The public part, in which the order of the members is always the same.
        key = key.Algorithm.to_jwk(key.key)
    return sha256(key.encode() if isinstance(key, str) else key).hexdigest()[:_FINGERPRINT_DIGITS]


class KeySource(Protocol):
    """Finds the key for a token."""

    async def find(self, algorithm: str, key_id: str | None) -> Key | None:
        """Return the key with the id in a token's header, or None; perhaps fetch it first.

        Raises:
            InternalError: the keys are not available.
        """
        ...


class OneKey:
    """A single key for all tokens, whatever key id they name."""

    def __init__(self, key: str | bytes, algorithms: Collection[str]) -> None:
        """Check that `key`, in PEM or a shared secret, is good for all the algorithms."""
        for name in algorithms:
            _check_key(key, name)
        self._key = key

    async def find(self, algorithm: str, key_id: str | None) -> Key | None:  # noqa: ARG002
        """Return the key."""
        return self._key


def _check_key(key: str | bytes, name: str) -> None:
    algorithm = get_default_algorithms()[name]
    try:
        too_short = algorithm.check_key_length(algorithm.prepare_key(key))
    except (jwt.InvalidKeyError, ValueError, TypeError):
        # Not chained, as the original error or its traceback may show the key.
        raise ValueError(f"the key is not one for {name}") from None
    if too_short is not None:
        raise ValueError(f"the key is too short for {name}")


@attrs.frozen
class KeySet:
    """The usable keys of a key set, by algorithm, each with its id."""

    _keys: Mapping[str, Sequence[tuple[str | None, jwt.PyJWK]]]

    def find(self, algorithm: str, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key with this id; for a token without one, the only key if there is one."""
        keys = self._keys[algorithm]
        if key_id is None:
            return keys[0][1] if len(keys) == 1 else None
        return next((key for known, key in keys if known == key_id), None)


def parse_key_set(data: bytes, algorithms: Collection[str]) -> KeySet:
    """Parse a set of public keys, and keep the keys for these algorithms.

    Raises:
        ValueError: `data` is not a key set, or has no key for any of the algorithms.
    """
    members = _members(data)
    keys = {
        name: [
            (cast("str | None", member.get("kid")), key)
            for member in members
            if _is_for(member, name) and (key := _public_key(member, name)) is not None
        ]
        for name in algorithms
    }
    if not any(keys.values()):
        raise ValueError(f"it has no key for {', '.join(algorithms)}")
    return KeySet(keys)


def _members(data: bytes) -> list[JsonObject]:
    try:
        document = loads(data)
    except InvalidRequest as error:
        raise ValueError(f"not JSON: {error.message}") from None
    match document:
        case {"keys": [*members]}:
            return [cast("JsonObject", member) for member in members if isinstance(member, dict)]
        case _:
            raise ValueError("not a JSON object with a list of keys")


def _is_for(member: JsonObject, name: str) -> bool:
    kind, curves = _KINDS[name]
    operations = member.get("key_ops")
    return (
        member.get("kty") == kind
        and member.get("crv") in curves
        and member.get("alg") in (None, name)
        and member.get("use") in (None, "sig")
        and (operations is None or (isinstance(operations, list) and "verify" in operations))
        and isinstance(member.get("kid"), str | None)
    )


def _public_key(member: JsonObject, name: str) -> jwt.PyJWK | None:
    try:
        key = jwt.PyJWK({part: member[part] for part in _PUBLIC & member.keys()}, name)
        problem = key.Algorithm.check_key_length(key.key)
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        problem = type(error).__name__
    else:
        if problem is None:
            return key
    log.warning("key cannot be used", extra={"algorithm": name, "why": problem})
    return None
