"""Settings of `JwtAuth`: which are refused, and what it needs to be installed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Any

import pytest

from arcp_trio.authenticators.keys import parse_key_set
from tests.authenticators.issuer import (
    SECRET,
    SHORT,
    es256_auth,
    jwk,
    key_set,
    public_pem,
)


@pytest.mark.parametrize(
    "changes",
    [
        {"algorithms": []},
        {"algorithms": ["none"]},
        {"algorithms": ["ES256", "none"]},
        {"algorithms": ["es256"]},
        {"algorithms": "ES256"},
        {"algorithms": ["ES256K"]},
        {"algorithms": ["ES256", "HS256"]},
        {"algorithms": ["HS256"]},  # with a public key as the secret
        {"algorithms": ["HS256"], "key": public_pem("RS256").encode()},
        {"algorithms": ["HS256"], "key": SECRET[:31]},
        {"algorithms": ["HS384"], "key": SECRET[:47]},
        {"algorithms": ["HS512"], "key": SECRET[:63]},
        {"algorithms": ["HS256"], "key": ""},
        {"algorithms": ["HS256"], "key": b""},
        {"algorithms": ["RS256"]},
        {"algorithms": ["ES384"]},
        {"algorithms": ["ES256", "ES384"]},
        {"algorithms": ["EdDSA"]},
        {"key": "no key"},
        {"key": None},
        {"jwks": "keys.json"},
        {"key": None, "jwks": "keys.json", "algorithms": ["HS256"]},
        {"audience": ""},
        {"issuer": ""},
        {"principal_claim": ""},
        {"leeway": -1},
        {"leeway": float("nan")},
        {"leeway": float("inf")},
    ],
)
def test_settings_that_accept_forged_tokens_are_refused(changes: dict[str, Any]) -> None:
    """A setting that is wrong, or would accept forged tokens, is refused and shows no key."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        es256_auth(**changes)
    key = changes.get("key")
    if key and key != "no key":
        assert str(key) not in str(caught.value)


@pytest.mark.parametrize("others", [["ES256"], ["RS256", "PS256"]])
@pytest.mark.parametrize("source", [{}, {"key": None, "jwks": "keys.json"}, {"key": SECRET}])
def test_secrets_and_pairs_of_keys_do_not_mix(source: dict[str, Any], others: list[str]) -> None:
    """Algorithms of a shared secret and others are not accepted together."""
    for algorithms in (["HS256", *others], [*others, "HS512"]):
        with pytest.raises(ValueError, match="cannot be mixed"):
            es256_auth(algorithms=algorithms, **source)


def test_a_short_rsa_key_is_refused() -> None:
    """An RSA key that is too short is refused, alone and in a set."""
    with pytest.raises(ValueError, match="too short"):
        es256_auth(key=public_pem("RS256", SHORT), algorithms=["RS256"])
    with pytest.raises(ValueError, match="it has no key for RS256"):
        parse_key_set(key_set(jwk("RS256", SHORT)), ["RS256"])


def test_without_the_extra_the_package_works_and_says_what_is_missing() -> None:
    """Only `JwtAuth` needs PyJWT, and its import error says how to install it."""
    script = (
        "import sys; sys.modules['jwt'] = None\n"
        "import arcp_trio; arcp_trio.StaticTokens\n"
        "try: arcp_trio.JwtAuth\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    python = shlex.quote(sys.executable)
    assert done.stdout.lower() == (
        f"JwtAuth needs PyJWT: {python} -m pip install 'PyJWT[crypto]>=2.15'\n".lower()
    )
