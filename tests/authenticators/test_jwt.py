"""Which signed tokens are good, with one key that is given."""

from __future__ import annotations

import hashlib
import hmac
import logging
import subprocess
import sys
import time
from typing import Any

import jwt
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import arcp_trio
from arcp_trio import JwtAuth, Runtime
from arcp_trio.authenticators.keys import parse_key_set
from arcp_trio.cli.logs import TextFormatter
from arcp_trio.testing import open_peers
from arcp_trio.transport import TransportClosed
from tests.authenticators.issuer import (
    AUDIENCE,
    SECRET,
    SHORT,
    claims,
    encoded,
    forge,
    jwk,
    key_set,
    private_key,
    public_pem,
    sign,
    sign_anything,
    sign_bytes,
)

ASYMMETRIC = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
ASYMMETRIC += ["ES256", "ES384", "ES512", "EdDSA"]


def auth(**changes: Any) -> JwtAuth:
    """One that knows the issuer's key for ES256."""
    settings: dict[str, Any] = {
        "key": public_pem("ES256"),
        "algorithms": ["ES256"],
        "audience": AUDIENCE,
    }
    return JwtAuth(**(settings | changes))


# --- good ones


@pytest.mark.parametrize("algorithm", ASYMMETRIC)
async def test_a_signed_token_stands_for_its_subject(algorithm: str) -> None:
    """Each algorithm with a pair of keys works with the public one in PEM."""
    check = auth(key=public_pem(algorithm), algorithms=[algorithm])
    assert await check(sign(algorithm)) == "alice"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("secret", [SECRET, SECRET.encode()])
async def test_a_shared_secret_signs_too(algorithm: str, secret: str | bytes) -> None:
    """The algorithms of a shared secret take it as text or as bytes."""
    check = auth(key=secret, algorithms=[algorithm])
    assert await check(sign(algorithm)) == "alice"
    assert await check(jwt.encode(claims(), SECRET[::-1], algorithm)) is None


async def test_more_than_one_algorithm_may_be_accepted() -> None:
    """An RSA key serves all algorithms of RSA that are named."""
    check = auth(key=public_pem("RS256"), algorithms=["RS256", "PS256"])
    for algorithm, principal in (("RS256", "alice"), ("PS256", "alice"), ("RS512", None)):
        assert await check(sign(algorithm)) == principal


async def test_a_token_may_be_for_others_too() -> None:
    """The audience is one of those in the token, spelt the same."""
    assert await auth()(sign(aud=["other", AUDIENCE])) == "alice"
    assert await auth(audience=AUDIENCE.upper())(sign()) is None


async def test_another_claim_may_be_the_principal() -> None:
    """Who decides on the claim, decides on the principal."""
    check = auth(principal_claim="email")
    assert await check(sign(email="a@example.com")) == "a@example.com"
    assert await check(sign()) is None


async def test_the_issuer_counts_when_it_is_named() -> None:
    """With an issuer named, tokens of others, and of nobody, are not good."""
    check = auth(issuer="https://issuer.test")
    assert await check(sign(iss="https://issuer.test")) == "alice"
    for iss in (None, "", "https://issuer.test/", ["https://issuer.test"]):
        assert await check(sign_anything(claims(iss=iss))) is None
    assert await auth()(sign(iss="anybody")) == "alice"


async def test_clocks_may_be_off_a_little() -> None:
    """What has ended, or not begun, by less than the leeway is good."""
    now = int(time.time())
    for off, principal in ((30, "alice"), (90, None)):
        check = auth(leeway=60)
        assert await check(sign(exp=now - off)) == principal
        assert await check(sign(nbf=now + off)) == principal
        assert await check(sign(iat=now + off)) == principal


# --- bad ones


def test_the_helper_signs() -> None:
    """What is refused below is not refused for its signature."""
    assert trio.run(auth(), sign_anything(claims())) == "alice"


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
    """A signature is not all: who, for whom and until when have to be right as well."""
    assert await auth()(sign_anything(claims(**changes))) is None


@pytest.mark.parametrize("payload", [[], "alice", None, 7, {}])
async def test_what_is_signed_must_be_claims(payload: object) -> None:
    """Other JSON, although signed, is not good."""
    assert await auth()(sign_anything(payload)) is None


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "", None, ["ES256"], {"a": 1}, "ES384"])
@pytest.mark.parametrize("signature", [b"", b"x"])
async def test_the_token_does_not_choose_its_algorithm(alg: object, signature: bytes) -> None:
    """None at all, or another than is accepted, is not good, however it is signed."""
    for payload in (claims(), {}):
        assert await auth()(forge({"alg": alg, "typ": "JWT"}, payload, signature)) is None
    assert await auth()(forge({}, claims())) is None


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("line_end", ["\n", ""])
async def test_a_public_key_is_no_secret(algorithm: str, line_end: str) -> None:
    """A token of HS256, signed with the text of the public key, is not good."""
    pem = public_pem(algorithm)
    text = pem.rstrip("\n") + line_end
    signed = forge({"alg": "HS256", "typ": "JWT"}, claims()).rstrip(".")
    signature = hmac.digest(text.encode(), signed.encode(), hashlib.sha256)
    token = f"{signed}.{encoded(signature)}"
    assert await auth(key=pem, algorithms=[algorithm])(token) is None


async def test_another_key_does_not_do() -> None:
    """The right algorithm with a key of somebody else's is not good."""
    assert await auth()(sign("ES256", "somebody else")) is None


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
    """An extension that must be understood is not, and a name of a key is text."""
    assert await auth()(sign_anything(claims(), header)) is None


async def test_keys_in_the_header_are_not_looked_at() -> None:
    """A token does not bring its key along, nor say where it is to be fetched."""
    forger = jwt.get_algorithm_by_name("ES256").to_jwk(
        private_key("ES256", "forger").public_key(), as_dict=True
    )
    header = {"jwk": forger, "jku": "https://forger.test/", "x5u": "https://forger.test/"}
    assert await auth()(sign("ES256", "forger", header=header)) is None


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
    """Whatever it is, it is not good, and nothing is raised."""
    assert await auth()(token) is None


async def test_a_good_token_of_a_hundred_kilobytes_is_not_looked_at() -> None:
    """Its size is its end, before anything is decoded."""
    token = sign(extra="x" * 75_000)
    assert len(token) > 100_000
    assert await auth()(token) is None
    assert await auth()(sign(extra="x" * 8_000)) == "alice"


async def test_deep_and_large_contents_are_not_good() -> None:
    """JSON that takes a parser to its bounds is refused like any other."""
    for text in ("[" * 5_000, '{"exp":' + "9" * 5_000 + "}", '{"exp":1e999}', "\xff"):
        content = text.encode("latin-1")
        assert await auth()(sign_bytes(content)) is None
        assert await auth()(f"{encoded(content)}.e30.e30") is None


TOKEN = sign(exp=int(time.time()) + 36_000)
RSA_TOKEN = sign("RS256", exp=int(time.time()) + 36_000)


@given(st.data())
def test_nothing_can_be_changed_in_a_token(data: st.DataObject) -> None:
    """With any characters replaced, added or taken, a good token is not good any more."""
    token = data.draw(st.sampled_from([TOKEN, RSA_TOKEN]))
    start = data.draw(st.integers(0, len(token)))
    end = data.draw(st.integers(start, min(len(token), start + 4)))
    put = data.draw(st.text(st.sampled_from("AQgw_-=.\n xyz019\N{SNOWMAN}"), max_size=4))
    changed = token[:start] + put + token[end:]
    check = auth() if token is TOKEN else auth(key=public_pem("RS256"), algorithms=["RS256"])
    expected = "alice" if changed == token else None
    assert trio.run(check, changed) == expected


def test_the_last_characters_have_one_spelling() -> None:
    """Where Base64 has bits to spare they must be zero."""
    check = auth(key=public_pem("RS256"), algorithms=["RS256"])
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="
    good = [
        (RSA_TOKEN[:place] + letter + RSA_TOKEN[place + 1 :])
        for place in (RSA_TOKEN.index(".") - 1, RSA_TOKEN.rindex(".") - 1, len(RSA_TOKEN) - 1)
        for letter in alphabet
        if trio.run(check, RSA_TOKEN[:place] + letter + RSA_TOKEN[place + 1 :])
    ]
    assert good == [RSA_TOKEN] * 3


# --- what is said of it


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
    """One line at info, without the token or a part of it."""
    caplog.set_level(logging.INFO)
    assert await auth()(token) is None
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    line = TextFormatter().format(record)
    assert why in line
    assert record.exc_info is None
    assert not any(part in line for part in token.split(".") if len(part) > 1)


# --- how one is made


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
def test_what_could_not_tell_forged_tokens_is_not_made(changes: dict[str, Any]) -> None:
    """A setting that makes no sense, or would let forgers in, is refused at once."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        auth(**changes)
    key = changes.get("key")
    if key and key != "no key":
        assert str(key) not in str(caught.value)


@pytest.mark.parametrize("others", [["ES256"], ["RS256", "PS256"]])
@pytest.mark.parametrize("source", [{}, {"key": None, "jwks": "keys.json"}, {"key": SECRET}])
def test_secrets_and_pairs_of_keys_do_not_mix(source: dict[str, Any], others: list[str]) -> None:
    """Wherever the keys are from, one kind of algorithm is all that is accepted."""
    for algorithms in (["HS256", *others], [*others, "HS512"]):
        with pytest.raises(ValueError, match="do not go together"):
            auth(algorithms=algorithms, **source)


def test_a_short_rsa_key_is_refused() -> None:
    """A key that can be broken is not used, alone or in a set."""
    with pytest.raises(ValueError, match="too short"):
        auth(key=public_pem("RS256", SHORT), algorithms=["RS256"])
    with pytest.raises(ValueError, match="no key in it is one for RS256"):
        parse_key_set(key_set(jwk("RS256", SHORT)), ["RS256"])


def test_without_the_extra_the_package_works_and_says_what_is_missing() -> None:
    """Only who asks for JwtAuth needs PyJWT, and is told how to get it in one line."""
    script = (
        "import sys; sys.modules['jwt'] = None\n"
        "import arcp_trio; arcp_trio.StaticTokens\n"
        "try: arcp_trio.JwtAuth\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "JwtAuth needs PyJWT: pip install 'arcp-trio[jwt]'\n"


# --- over the wire


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
    """UNAUTHENTICATED in the same words for whatever is wrong, and the socket closes with 1008."""
    async with Runtime(auth=auth()) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        with pytest.raises(arcp_trio.Unauthenticated) as caught:
            await peer.hello(token=token)
        assert caught.value.message == "the token is not valid"
        with pytest.raises(TransportClosed) as closed:
            await peer.receive()
        assert closed.value.code == 1008


async def test_a_good_token_opens_a_session_of_its_principal(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Two subjects are two principals, and neither sees the other's jobs."""
    runtime = Runtime(auth=auth())

    @runtime.agent("echo")
    async def echo(job: arcp_trio.JobContext) -> str:
        return job.principal

    async with runtime, open_peers(runtime) as peers:
        alice, bob = await peers.connect(), await peers.connect()
        await alice.hello(token=sign(sub="alice"))
        await bob.hello(token=sign(sub="bob"))
        job_id = (await alice.submit("echo"))["job_id"]
        terminal = await alice.until_terminal(job_id)
        assert terminal["payload"]["result"] == "alice"
        for peer, expected in ((alice, [job_id]), (bob, [])):
            await peer.send("session.list_jobs", {})
            jobs = (await peer.expect("session.jobs"))["payload"]["jobs"]
            assert [job["job_id"] for job in jobs] == expected
