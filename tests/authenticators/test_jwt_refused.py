"""Tokens that are refused, and what the log and the client are told."""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from typing import Any

import jwt
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import arcp_trio
from arcp_trio import Runtime
from arcp_trio.log_lines import TextFormatter
from arcp_trio.testing import open_peers
from arcp_trio.transport import TransportClosed
from tests.authenticators.issuer import (
    AUDIENCE,
    claims,
    encoded,
    es256_auth,
    forge,
    private_key,
    public_pem,
    sign,
    sign_anything,
    sign_bytes,
)


def test_the_helper_signs() -> None:
    """A token that the helper signs is accepted, so those below are not refused for that."""
    assert trio.run(es256_auth(), sign_anything(claims())) == "alice"


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": None},
        {"exp": int(time.time()) - 3600},
        {"exp": 0},
        {"exp": -1},
        {"exp": "soon"},
        {"exp": "NaN"},
        {"exp": []},
        {"exp": True},
        {"nbf": int(time.time()) + 3600},
        {"nbf": "later"},
        {"iat": int(time.time()) + 3600},
        {"iat": {}},
        {"aud": None},
        {"aud": ""},
        {"aud": []},
        {"aud": "other"},
        {"aud": [AUDIENCE, 7]},
        {"aud": {AUDIENCE: True}},
        {"aud": AUDIENCE + " "},
        {"sub": None},
        {"sub": ""},
        {"sub": "  "},
        {"sub": 7},
        {"sub": ["alice"]},
        {"sub": "alice\nbob"},
        {"sub": "a" * 256},
    ],
)
async def test_claims_that_are_not_good(changes: dict[str, Any]) -> None:
    """A signed token with wrong claims is refused."""
    assert await es256_auth()(sign_anything(claims(**changes))) is None


@pytest.mark.parametrize("payload", [[], "alice", None, 7, {}])
async def test_what_is_signed_must_be_claims(payload: object) -> None:
    """A signed token whose payload is not an object of claims is refused."""
    assert await es256_auth()(sign_anything(payload)) is None


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, ["ES256"], {"a": 1}, "ES384"])
@pytest.mark.parametrize("signature", [b"", b"x"])
async def test_the_token_does_not_choose_its_algorithm(alg: object, signature: bytes) -> None:
    """A token that names no algorithm, or one that is not accepted, is refused."""
    for payload in (claims(), {}):
        assert await es256_auth()(forge({"alg": alg, "typ": "JWT"}, payload, signature)) is None
    assert await es256_auth()(forge({}, claims())) is None


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("line_end", ["\n", ""])
async def test_a_public_key_is_no_secret(algorithm: str, line_end: str) -> None:
    """A token of HS256 that is signed with the text of the public key is refused."""
    pem = public_pem(algorithm)
    text = pem.rstrip("\n") + line_end
    signed = forge({"alg": "HS256", "typ": "JWT"}, claims()).rstrip(".")
    signature = hmac.digest(text.encode(), signed.encode(), hashlib.sha256)
    token = f"{signed}.{encoded(signature)}"
    assert await es256_auth(key=pem, algorithms=[algorithm])(token) is None


async def test_another_key_does_not_do() -> None:
    """A token of the right algorithm with another issuer's key is refused."""
    assert await es256_auth()(sign("ES256", "somebody else")) is None


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"], "exp": 1},
        {"crit": ["b64"], "b64": False},
        {"crit": ["b64"], "b64": True},
        {"crit": []},
        {"crit": "exp"},
        {"crit": None},
        {"b64": False},
        {"kid": 7},
        {"kid": ["first"]},
    ],
)
async def test_headers_that_ask_for_more(header: dict[str, Any]) -> None:
    """A token that asks for an extension, or whose key id is not text, is refused."""
    assert await es256_auth()(sign_anything(claims(), header)) is None


async def test_keys_in_the_header_are_not_looked_at() -> None:
    """A key, or the URL of one, in a token's header is ignored."""
    forger = jwt.get_algorithm_by_name("ES256").to_jwk(
        private_key("ES256", "forger").public_key(), as_dict=True
    )
    header = {"jwk": forger, "jku": "https://forger.test/", "x5u": "https://forger.test/"}
    assert await es256_auth()(sign("ES256", "forger", header=header)) is None


@pytest.mark.parametrize(
    "token",
    [
        "",
        " ",
        ".",
        "..",
        "...",
        "a.b.c",
        "a.b.c.d.e",
        "e30.e30.",
        "e30.e30.e30",
        "\N{SNOWMAN}.e30.e30",
        "e30.e30.\udc80",
        "\x00",
        "x" * 100_000,
        f"{'x' * 33_000}.{'x' * 33_000}.{'x' * 33_000}",
        ("WyJ" * 30_000) + ".e30.e30",
    ],
)
async def test_garbage_is_not_good(token: str) -> None:
    """Text that is not a token is refused, and raises nothing."""
    assert await es256_auth()(token) is None


async def test_a_good_token_of_a_hundred_kilobytes_is_not_looked_at() -> None:
    """A signed token that is too large is refused."""
    token = sign(extra="x" * 75_000)
    assert len(token) > 100_000
    assert await es256_auth()(token) is None
    assert await es256_auth()(sign(extra="x" * 8_000)) == "alice"


async def test_deep_and_large_contents_are_not_good() -> None:
    """JSON that is too deep, too large, or malformed is refused."""
    for text in ("[" * 5_000, '{"exp":' + "9" * 5_000 + "}", '{"exp":1e999}', "\xff"):
        content = text.encode("latin-1")
        assert await es256_auth()(sign_bytes(content)) is None
        assert await es256_auth()(f"{encoded(content)}.e30.e30") is None


TOKEN = sign(exp=int(time.time()) + 36_000)
RSA_TOKEN = sign("RS256", exp=int(time.time()) + 36_000)


@given(st.data())
def test_nothing_can_be_changed_in_a_token(data: st.DataObject) -> None:
    """A token with any characters replaced, added or removed is refused."""
    token = data.draw(st.sampled_from([TOKEN, RSA_TOKEN]))
    start = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(start, min(len(token), start + 4)))
    put = data.draw(st.text(st.sampled_from("AQgw_-=.\n xyz019\N{SNOWMAN}"), max_size=4))
    changed = token[:start] + put + token[end:]
    check = (
        es256_auth()
        if token is TOKEN
        else es256_auth(key=public_pem("RS256"), algorithms=["RS256"])
    )
    expected = "alice" if changed == token else None
    assert trio.run(check, changed) == expected


def test_the_last_characters_have_one_spelling() -> None:
    """A token whose unused bits in Base64 are not zero is refused."""
    check = es256_auth(key=public_pem("RS256"), algorithms=["RS256"])
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="
    good = [
        (RSA_TOKEN[:place] + letter + RSA_TOKEN[place + 1 :])
        for place in (RSA_TOKEN.index(".") - 1, RSA_TOKEN.rindex(".") - 1, len(RSA_TOKEN) - 1)
        for letter in alphabet
        if trio.run(check, RSA_TOKEN[:place] + letter + RSA_TOKEN[place + 1 :])
    ]
    assert good == [RSA_TOKEN] * 3


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (sign(exp=1), "ExpiredSignatureError"),
        (sign(exp=None), "it has no exp"),
        (sign(aud="other"), "InvalidAudienceError"),
        (sign("ES256", "other"), "InvalidSignatureError"),
        (sign("HS256"), "algorithm"),
        ("x.y", "form"),
    ],
)
async def test_the_log_says_why(token: str, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """One line at level info says why a token was refused, without any part of the token."""
    caplog.set_level(logging.INFO)
    assert await es256_auth()(token) is None
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    line = TextFormatter().format(record)
    assert why in line
    assert record.exc_info is None
    assert not any(part in line for part in token.split(".") if len(part) > 1)


@pytest.mark.spec("12-6", "1.0/6.1-1")
@pytest.mark.parametrize(
    "token",
    [
        forge({"alg": "none"}, claims()),
        sign("HS256"),
        sign(exp=int(time.time()) - 60),
        sign(exp=None),
        sign(aud="other"),
        sign("ES256", "other"),
    ],
)
async def test_a_token_that_is_not_good_opens_nothing(
    token: str, autojump_clock: trio.testing.MockClock
) -> None:
    """Each refused token gets the same UNAUTHENTICATED, and the socket closes with 1008."""
    async with Runtime(auth=es256_auth()) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        with pytest.raises(arcp_trio.Unauthenticated) as caught:
            await peer.hello(token=token)
        assert caught.value.message == "the token is not valid"
        with pytest.raises(TransportClosed) as closed:
            await peer.receive()
        assert closed.value.code == 1008
