"""Signed tokens that are accepted, with a single key."""

from __future__ import annotations

import time
from pathlib import Path

import jwt
import pytest
import trio
from trio.testing import MockClock

import arcp_trio
from arcp_trio import JwtAuth, Runtime
from arcp_trio.testing import TrioClock, open_peers
from tests.authenticators.issuer import (
    AUDIENCE,
    SECRET,
    claims,
    es256_auth,
    jwk,
    key_set,
    public_pem,
    sign,
    sign_anything,
)
from tests.reading import refusal

ASYMMETRIC = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]
ASYMMETRIC += ["ES256", "ES384", "ES512", "EdDSA"]


@pytest.mark.parametrize("algorithm", ASYMMETRIC)
async def test_a_signed_token_stands_for_its_subject(algorithm: str) -> None:
    """Each algorithm with a pair of keys accepts tokens with the public key in PEM."""
    check = es256_auth(key=public_pem(algorithm), algorithms=[algorithm])
    assert await check(sign(algorithm)) == "alice"


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize("secret", [SECRET, SECRET.encode()])
async def test_a_shared_secret_signs_too(algorithm: str, secret: str | bytes) -> None:
    """The algorithms of a shared secret take it as text or as bytes."""
    check = es256_auth(key=secret, algorithms=[algorithm])
    assert await check(sign(algorithm)) == "alice"
    assert await check(jwt.encode(claims(), SECRET[::-1], algorithm)) is None


async def test_more_than_one_algorithm_may_be_accepted() -> None:
    """An RSA key serves all algorithms of RSA that are accepted, and no other."""
    check = es256_auth(key=public_pem("RS256"), algorithms=["RS256", "PS256"])
    for algorithm, principal in (("RS256", "alice"), ("PS256", "alice"), ("RS512", None)):
        assert await check(sign(algorithm)) == principal


async def test_a_token_may_be_for_others_too() -> None:
    """The audience must be one of the token's, in the same spelling."""
    assert await es256_auth()(sign(aud=["other", AUDIENCE])) == "alice"
    assert await es256_auth(audience=AUDIENCE.upper())(sign()) is None


async def test_another_claim_may_be_the_principal() -> None:
    """The principal is the value of `principal_claim`."""
    check = es256_auth(principal_claim="email")
    assert await check(sign(email="a@example.com")) == "a@example.com"
    assert await check(sign()) is None


async def test_the_issuer_counts_when_it_is_named() -> None:
    """With an issuer required, tokens of other issuers, or of none, are refused."""
    check = es256_auth(issuer="https://issuer.test")
    assert await check(sign(iss="https://issuer.test")) == "alice"
    for iss in (None, "", "https://issuer.test/", ["https://issuer.test"]):
        assert await check(sign_anything(claims(iss=iss))) is None
    assert await es256_auth()(sign(iss="anybody")) == "alice"


async def test_clocks_may_be_off_a_little() -> None:
    """A token that ended or begins within the leeway is accepted."""
    now = int(time.time())
    for off, principal in ((30, "alice"), (90, None)):
        check = es256_auth(leeway=60)
        assert await check(sign(exp=now - off)) == principal
        assert await check(sign(nbf=now + off)) == principal
        assert await check(sign(iat=now + off)) == principal


async def test_a_good_token_opens_a_session_of_its_principal(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Tokens of two subjects are two principals, which do not see each other's jobs."""
    runtime = Runtime(auth=es256_auth())

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


async def test_a_session_lasts_as_long_as_its_token(autojump_clock: MockClock) -> None:
    """At `exp` plus the leeway a session ends, unless its client brings a later token."""
    runtime = Runtime(auth=es256_auth(leeway=20), clock=TrioClock())
    now = int(time.time())
    async with runtime, open_peers(runtime) as peers:
        began = trio.current_time()
        peer = await peers.connect()
        await peer.hello(token=sign(exp=now + 100))
        assert (await refusal(peer))["code"] == "UNAUTHENTICATED"
        assert trio.current_time() - began == pytest.approx(120, abs=10)
        alone = await peers.connect()
        await alone.send("session.resume", peer.resume_from())
        assert (await refusal(alone))["code"] == "UNAUTHENTICATED"
        again = await peers.connect()
        await again.hello(token=sign(exp=now + 400), resume=peer.resume_from())
        assert again.session_id == peer.session_id
        assert (await refusal(again))["code"] == "UNAUTHENTICATED"
        assert trio.current_time() - began == pytest.approx(420, abs=10)


async def test_a_token_is_good_as_long_as_its_key_is(file: Path) -> None:
    """A key that is no longer in the set, or is another one by now, vouches for nobody."""
    await trio.Path(file).write_bytes(key_set(jwk("ES256"), jwk("ES256", "second")))
    check = JwtAuth(jwks=file, algorithms=["ES256"], audience=AUDIENCE)
    first, second = await check(sign(kid="first")), await check(sign(name="second", kid="second"))
    assert first is not None
    assert second is not None
    assert await check.still_good(first)
    await trio.Path(file).write_bytes(
        key_set(jwk("ES256", "second"), jwk("ES256", "third", kid="first"))
    )
    assert not await check.still_good(first)
    assert await check.still_good(second)
    assert not await es256_auth(key=public_pem("ES256", "third")).still_good(second)
