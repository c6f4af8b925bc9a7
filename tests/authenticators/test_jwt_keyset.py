"""Key sets: which key is for a token, and which members of a set are keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio.authenticators.keys import parse_key_set
from tests.authenticators.issuer import AUDIENCE, SECRET, jwk, key_set, sign, sign_anything
from tests.authenticators.keyfiles import file_auth, write


async def test_a_token_is_checked_with_the_key_it_names(file: Path) -> None:
    """The key id and the key of a token must belong together."""
    write(file, key_set(jwk("ES256", "one"), jwk("ES256", "two")))
    check = file_auth(file)
    assert await check(sign("ES256", "one", kid="one")) == "alice"
    assert await check(sign("ES256", "two", kid="two")) == "alice"
    for name, kid in (("one", "two"), ("two", "one"), ("one", "three"), ("one", ""), ("one", None)):
        assert await check(sign("ES256", name, kid=kid)) is None


async def test_the_only_key_need_not_be_named(file: Path) -> None:
    """A token without a key id is checked with the only key of its algorithm."""
    write(file, key_set(jwk("ES256"), jwk("RS256", "rsa"), jwk("RS256", "other rsa")))
    check = file_auth(file, "ES256", "RS256")
    assert await check(sign("ES256")) == "alice"
    assert await check(sign("RS256", "rsa")) is None
    assert await check(sign("RS256", "rsa", kid="rsa")) == "alice"


async def test_a_name_is_for_its_kind_of_key(file: Path) -> None:
    """Keys of different types may share an id, and each is used for its own algorithm."""
    write(file, key_set(jwk("ES256", "same"), jwk("RS256", "same"), jwk("EdDSA", "ed")))
    check = file_auth(file, "ES256", "RS256", "EdDSA")
    assert await check(sign("ES256", "same", kid="same")) == "alice"
    assert await check(sign("RS256", "same", kid="same")) == "alice"
    assert await check(sign("EdDSA", "ed", kid="ed")) == "alice"
    assert await check(sign("EdDSA", "ed", kid="same")) is None
    assert await check(sign("ES256", "same", kid="ed")) is None


@pytest.mark.parametrize(
    "member",
    [
        jwk("ES256", use="enc"),
        jwk("ES256", key_ops=["sign"]),
        jwk("ES256", key_ops=[]),
        jwk("ES256", key_ops="verify"),
        jwk("ES256", alg="ES384"),
        jwk("ES256", alg="none"),
        jwk("ES256", kid=7),
        jwk("ES256", kty="RSA"),
        jwk("ES256", crv="P-384"),
        jwk("ES256", crv=None),
        jwk("ES256", x=None),
        jwk("ES256", x="AAAA"),
        jwk("ES256", x=7),
        jwk("ES256", y=jwk("ES256")["x"]),  # not on the curve
        jwk("ES384"),
        {"kty": "oct", "kid": "first", "alg": "HS256", "k": "c2VjcmV0" * 8},
        {"kty": ["EC"]},
        {},
        "first",
        None,
    ],
)
async def test_keys_for_something_else_are_left_out(member: object, file: Path) -> None:
    """A key is left out of a set if it is for another use, or malformed."""
    with pytest.raises(ValueError, match="it has no key for ES256"):
        parse_key_set(key_set(member), ["ES256"])
    write(file, key_set(member, jwk("ES256", "good")))
    assert await file_auth(file)(sign(kid="first")) is None
    assert await file_auth(file)(sign("ES256", "good", kid="good")) == "alice"


@pytest.mark.parametrize(
    "changes",
    [
        {"use": None},
        {"alg": None},
        {"key_ops": ["verify"]},
        {"use": None, "key_ops": ["verify", 1]},
    ],
)
async def test_a_key_may_say_less_or_more(changes: dict[str, Any], file: Path) -> None:
    """A key need not name its use or algorithm, and may have other members."""
    write(file, key_set(jwk("ES256", **changes, x5t="x", extra=[1])))
    assert await file_auth(file)(sign(kid="first")) == "alice"


async def test_only_the_public_part_of_a_key_is_used(file: Path) -> None:
    """The private part of a key in a set is ignored."""
    write(file, key_set(jwk("ES256", d="garbage")))
    assert await file_auth(file)(sign(kid="first")) == "alice"


async def test_a_public_key_of_a_set_is_no_secret(file: Path) -> None:
    """A token of HS256 that is signed with any text from a set is refused."""
    write(file, key_set(jwk("RS256")))
    check = file_auth(file, "RS256")
    member = jwk("RS256")
    for secret in (member["n"], json.dumps({"n": member["n"]}), SECRET, member["e"] * 8):
        for kid in (None, "first"):
            headers = {} if kid is None else {"kid": kid}
            token = jwt.encode({"sub": "alice", "aud": AUDIENCE}, secret, "HS256", headers)
            assert await check(token) is None


@pytest.mark.parametrize("kid", ["../keys", "first\x00", "first'--", "\udc80", "x" * 5_000, {}, 1])
async def test_names_of_keys_are_only_compared(kid: object, file: Path) -> None:
    """A key id is only compared: any value opens no file and raises nothing."""
    assert await file_auth(file)(sign_anything({"sub": "alice"}, {"kid": kid})) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"null",
        b'{"keys":{}}',
        b'{"keys":null}',
        b'{"keys":[]}',
        b"\xff",
        b"[" * 999,
    ],
)
def test_a_file_that_is_not_a_key_set_is_refused(content: bytes, file: Path) -> None:
    """A file that is not a key set is an error at the start, which says why."""
    write(file, content)
    with pytest.raises(ValueError, match=r"JSON|it has no key"):
        file_auth(file)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*jwk("ES256"), "key_ops", "d"]), JSON))
def test_nothing_in_a_set_breaks_its_reader(changes: dict[str, Any]) -> None:
    """A set with any members gives a key or a ValueError."""
    data = json.dumps({"keys": [jwk("ES256") | changes]}).encode()
    try:
        keys = parse_key_set(data, ["ES256", "RS256"])
    except ValueError:
        return
    assert keys.find("ES256", None) is not None
