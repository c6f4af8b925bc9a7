"""Sets of keys: which of them are for a token, and a file of them that changes."""

from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcp_trio import JwtAuth
from arcp_trio.authenticators.keys import MOST_BYTES, parse_key_set
from tests.authenticators.issuer import AUDIENCE, SECRET, jwk, key_set, sign, sign_anything


def auth(path: Path, *algorithms: str) -> JwtAuth:
    """One that knows the keys in a file."""
    return JwtAuth(jwks=path, algorithms=algorithms or ["ES256"], audience=AUDIENCE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a key for ES256, called first."""
    path = tmp_path / "keys.json"
    write(path, key_set(jwk("ES256")))
    return path


def write(path: Path, content: bytes) -> None:
    """Write the file in place."""
    path.write_bytes(content)


def replace(path: Path, content: bytes | None) -> None:
    """Put another file in its place, as careful programs do, or none."""
    if content is None:
        path.unlink()
        return
    draft = path.with_suffix(".new")
    draft.write_bytes(content)
    draft.replace(path)


# --- which key


async def test_a_token_is_checked_with_the_key_it_names(file: Path) -> None:
    """The right name and the right key have to come together."""
    write(file, key_set(jwk("ES256", "one"), jwk("ES256", "two")))
    check = auth(file)
    assert await check(sign("ES256", "one", kid="one")) == "alice"
    assert await check(sign("ES256", "two", kid="two")) == "alice"
    for name, kid in (("one", "two"), ("two", "one"), ("one", "three"), ("one", ""), ("one", None)):
        assert await check(sign("ES256", name, kid=kid)) is None


async def test_the_only_key_need_not_be_named(file: Path) -> None:
    """A token without a name is checked with the one key of its algorithm, if there is one."""
    write(file, key_set(jwk("ES256"), jwk("RS256", "rsa"), jwk("RS256", "other rsa")))
    check = auth(file, "ES256", "RS256")
    assert await check(sign("ES256")) == "alice"
    assert await check(sign("RS256", "rsa")) is None
    assert await check(sign("RS256", "rsa", kid="rsa")) == "alice"


async def test_a_name_is_for_its_kind_of_key(file: Path) -> None:
    """Keys of different kinds may share a name; none does for another's algorithm."""
    write(file, key_set(jwk("ES256", "same"), jwk("RS256", "same"), jwk("EdDSA", "ed")))
    check = auth(file, "ES256", "RS256", "EdDSA")
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
    """A key is used for what it says it is for, and for nothing it cannot be."""
    with pytest.raises(ValueError, match="no key in it is one for ES256"):
        parse_key_set(key_set(member), ["ES256"])
    write(file, key_set(member, jwk("ES256", "good")))
    assert await auth(file)(sign(kid="first")) is None
    assert await auth(file)(sign("ES256", "good", kid="good")) == "alice"


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
    """What it leaves open does not matter."""
    write(file, key_set(jwk("ES256", **changes, x5t="x", extra=[1])))
    assert await auth(file)(sign(kid="first")) == "alice"


async def test_only_the_public_part_of_a_key_is_used(file: Path) -> None:
    """A private part that somebody left in is not even looked at."""
    write(file, key_set(jwk("ES256", d="garbage")))
    assert await auth(file)(sign(kid="first")) == "alice"


async def test_a_public_key_of_a_set_is_no_secret(file: Path) -> None:
    """HS256 with what the set has in it, in any form, opens nothing."""
    write(file, key_set(jwk("RS256")))
    check = auth(file, "RS256")
    member = jwk("RS256")
    for secret in (member["n"], json.dumps({"n": member["n"]}), SECRET, member["e"] * 8):
        for kid in (None, "first"):
            headers = {} if kid is None else {"kid": kid}
            token = jwt.encode({"sub": "alice", "aud": AUDIENCE}, secret, "HS256", headers)
            assert await check(token) is None


@pytest.mark.parametrize("kid", ["../keys", "first\x00", "first'--", "\udc80", "x" * 5_000, {}, 1])
async def test_names_of_keys_are_only_compared(kid: object, file: Path) -> None:
    """Whatever a token names, it opens no file and raises nothing."""
    assert await auth(file)(sign_anything({"sub": "alice"}, {"kid": kid})) is None


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
def test_what_is_no_set_of_keys_is_refused(content: bytes, file: Path) -> None:
    """At the start, that is an error, and says what is wrong."""
    write(file, content)
    with pytest.raises(ValueError, match=r"JSON|no key in it"):
        auth(file)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*jwk("ES256"), "key_ops", "d"]), JSON))
def test_nothing_in_a_set_breaks_its_reader(changes: dict[str, Any]) -> None:
    """A set either gives a key or is refused with a reason, whatever is in it."""
    data = json.dumps({"keys": [jwk("ES256") | changes]}).encode()
    try:
        keys = parse_key_set(data, ["ES256", "RS256"])
    except ValueError:
        return
    assert keys.find("ES256", None) is not None


# --- a file that changes


async def test_a_changed_file_is_read_again(file: Path) -> None:
    """Rotation: both keys for a while, then the new one alone."""
    check = auth(file)
    old, new = sign(kid="first"), sign("ES256", "new", kid="new")
    assert (await check(old), await check(new)) == ("alice", None)
    replace(file, key_set(jwk("ES256"), jwk("ES256", "new")))
    assert (await check(old), await check(new)) == ("alice", "alice")
    write(file, key_set(jwk("ES256", "new")))
    assert (await check(old), await check(new)) == (None, "alice")


@pytest.mark.logs_error("keys not reloaded path=.*keys.json")
@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"keys":[]}', key_set(jwk("RS256")), b" " * (MOST_BYTES + 1), None]
)
async def test_a_bad_file_takes_no_key_away(
    content: bytes | None, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The keys before go on, it is said once, and a good file is taken when it is there."""
    check = auth(file)
    replace(file, content)
    for _ in range(3):
        assert await check(sign(kid="first")) == "alice"
    assert len(caplog.records) == 1
    replace(file, key_set(jwk("ES256", "new")))
    assert await check(sign("ES256", "new", kid="new")) == "alice"
    assert await check(sign(kid="first")) is None


@pytest.mark.logs_error("keys not reloaded path=.*keys.json")
async def test_trouble_with_reading_does_not_outlast_itself(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that could not be read is read as soon as it can, though it has not changed since."""
    check = auth(file)
    replace(file, key_set(jwk("ES256", "new")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        for _ in range(3):
            assert await check(sign(kid="first")) == "alice"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(caplog.records) == 1
    assert await check(sign("ES256", "new", kid="new")) == "alice"
    assert await check(sign(kid="first")) is None


@pytest.mark.logs_error("not a plain file")
async def test_a_pipe_in_its_place_holds_nothing_up(file: Path) -> None:
    """What is no plain file is not opened."""
    check = auth(file)
    replace(file, None)
    os.mkfifo(file)
    assert await check(sign(kid="first")) == "alice"
    with pytest.raises(ValueError, match="not a plain file"):
        auth(file)


def test_a_missing_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    """There is nothing to go on with."""
    with pytest.raises(FileNotFoundError):
        auth(tmp_path / "missing.json")
