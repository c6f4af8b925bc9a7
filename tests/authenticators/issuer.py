"""An issuer of signed tokens: its keys, its tokens, and what forgers make of them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from arcp_trio import JwtAuth

AUDIENCE = "arcp.test"
SECRET = "0123456789abcdef" * 4

SHORT = "short"
"""The name of an RSA key that is too short."""

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def _rsa(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


_MAKERS: dict[str, Callable[[], PrivateKey]] = {
    "RSA": lambda: _rsa(2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ES512": lambda: ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}
_MADE: dict[tuple[str, str], PrivateKey] = {}


def private_key(algorithm: str, name: str = "first") -> PrivateKey:
    """Return the issuer's key of this name; one of RSA is for all algorithms of RSA."""
    kind = "RSA" if algorithm[:2] in ("RS", "PS") else algorithm
    if (kind, name) not in _MADE:
        _MADE[kind, name] = _MAKERS[kind]() if name != SHORT else _rsa(1024)
    return _MADE[kind, name]


def public_pem(algorithm: str, name: str = "first") -> str:
    """Return the public half of a key, in PEM."""
    public = private_key(algorithm, name).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def jwk(algorithm: str, name: str = "first", **members: Any) -> dict[str, Any]:
    """Return the public half of a key as a member of a set; `members` are added, None removes."""
    public = jwt.get_algorithm_by_name(algorithm).to_jwk(
        private_key(algorithm, name).public_key(), as_dict=True
    )
    public.pop("key_ops", None)
    whole = {"kid": name, "alg": algorithm, "use": "sig", **public, **members}
    return {key: value for key, value in whole.items() if value is not None}


def key_set(*members: object) -> bytes:
    """Return a key set as an issuer publishes it."""
    return json.dumps({"keys": members}).encode()


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a good token with these changes; None removes a claim."""
    now = int(time.time())
    good = {"sub": "alice", "aud": AUDIENCE, "exp": now + 600, "iat": now}
    return {key: value for key, value in (good | changes).items() if value is not None}


def sign(
    algorithm: str = "ES256",
    name: str = "first",
    *,
    kid: str | None = None,
    header: dict[str, Any] | None = None,
    **changes: Any,
) -> str:
    """Return a token that is signed with the issuer's key of this name, or with its secret."""
    key: Any = SECRET if algorithm.startswith("HS") else private_key(algorithm, name)
    headers = dict(header or {})
    if kid is not None:
        headers["kid"] = kid
    return jwt.encode(claims(**changes), key, algorithm, headers)


def es256_auth(**changes: Any) -> JwtAuth:
    """Return an authenticator that knows the issuer's key for ES256."""
    settings: dict[str, Any] = {
        "key": public_pem("ES256"),
        "algorithms": ["ES256"],
        "audience": AUDIENCE,
    }
    return JwtAuth(**(settings | changes))


def forge(header: object, payload: object, signature: bytes = b"") -> str:
    """Put a token together without a library."""
    parts = (json.dumps(header).encode(), json.dumps(payload).encode(), signature)
    return ".".join(map(encoded, parts))


def sign_anything(payload: object, header: Mapping[str, object] | None = None) -> str:
    """Sign with the issuer's key for ES256 a payload or header that no library would sign."""
    return sign_bytes(json.dumps(payload).encode(), header)


def sign_bytes(payload: bytes, header: Mapping[str, object] | None = None) -> str:
    """Sign bytes that need not be JSON."""
    head = json.dumps({"alg": "ES256", **(header or {})}).encode()
    signed = f"{encoded(head)}.{encoded(payload)}"
    signature = jwt.get_algorithm_by_name("ES256").sign(signed.encode(), private_key("ES256"))
    return f"{signed}.{encoded(signature)}"


def encoded(part: bytes) -> str:
    """Encode a part of a token in Base64."""
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()
