"""Authenticators: which principal they name, and what happens when they fail (§6.1)."""

from __future__ import annotations

import hashlib

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import StaticTokens
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.errors import JobNotFound, PermissionDenied
from tests.reading import refusal
from tests.sessions.support import note_comparisons, open_stage
from tests.stage import hello_payload


@pytest.mark.parametrize("answer", [None, ""])
@pytest.mark.spec("12-6")
async def test_a_token_without_a_principal_is_refused(
    answer: str | None, autojump_clock: MockClock
) -> None:
    """An authenticator that returns None or an empty name opens no session."""

    async def nobody(token: str) -> str | None:
        return answer

    async with open_stage(auth=nobody) as stage:
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload())
        assert (await refusal(peer))["code"] == "UNAUTHENTICATED"


@pytest.mark.logs_error("authenticator failed")
@pytest.mark.parametrize("error", [ValueError, ExceptionGroup, trio.TooSlowError])
@pytest.mark.spec("12-7")
async def test_an_authenticator_that_raises_hurts_one_hello_only(
    error: type[Exception], autojump_clock: MockClock
) -> None:
    """A failing authenticator costs one hello; the client may try again."""

    async def moody(token: str) -> str | None:
        if token == TEST_TOKEN:
            if error is ExceptionGroup:
                raise ExceptionGroup("secret", [OSError("secret")])
            raise error("secret")
        return token

    async with open_stage(auth=moody) as stage:
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload())
        refused = await refusal(peer)
        assert (refused["code"], refused["retryable"]) == ("INTERNAL_ERROR", True)
        assert "secret" not in str(refused)
        await (await stage.connect()).hello(token="bob")


async def test_an_authenticator_may_refuse_in_its_own_words(autojump_clock: MockClock) -> None:
    """An ArcpError that an authenticator raises is sent to the client."""

    async def strict(token: str) -> str | None:
        raise PermissionDenied("not on Sundays")

    async with open_stage(auth=strict) as stage:
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload())
        refused = await refusal(peer)
        assert (refused["code"], refused["message"]) == ("PERMISSION_DENIED", "not on Sundays")


async def test_an_authenticator_that_hangs_is_given_up(autojump_clock: MockClock) -> None:
    """An authenticator that hangs is cancelled at the handshake's deadline."""
    cancelled_at: list[float] = []

    async def slow(token: str) -> str | None:
        if token != TEST_TOKEN:
            return token
        try:
            await trio.sleep_forever()
        finally:
            cancelled_at.append(trio.current_time())

    async with open_stage(auth=slow, handshake_seconds=10) as stage:
        started = trio.current_time()
        peer = await stage.connect()
        await peer.send("session.hello", hello_payload())
        await (await stage.connect()).hello(token="bob")
        assert trio.current_time() == started
        assert (await refusal(peer))["code"] == "UNAUTHENTICATED"
        assert cancelled_at == [started + 10]


async def test_the_principal_is_whom_the_authenticator_names(autojump_clock: MockClock) -> None:
    """Any async callable can authenticate, and the jobs belong to the principal it returns."""

    async def by_prefix(token: str) -> str | None:
        await trio.sleep(0.1)
        return token.partition(":")[0]

    async with open_stage(auth=by_prefix) as stage:
        ann, ben = await stage.connect(), await stage.connect()
        await ann.hello(token="ann:1")
        await ben.hello(token="ben:1")
        job = (await ann.submit("puppet"))["job_id"]
        cancel = await ben.send("job.cancel", {"job_id": job})
        with pytest.raises(JobNotFound):
            await ben.answer("job.cancelled", cancel)


@pytest.mark.parametrize("tokens", [{"": "a"}, {" ": "a"}, {"t": ""}, {"t": "\t"}])
def test_static_tokens_must_say_something(tokens: dict[str, str]) -> None:
    """A blank token or principal is refused when it is configured."""
    with pytest.raises(ValueError, match="blank"):
        StaticTokens(tokens)


async def test_static_tokens_know_theirs_and_no_other() -> None:
    """Static tokens match exactly, in any script."""
    tokens = StaticTokens({"a": "first", "ä": "second"})
    assert [await tokens(token) for token in ("a", "ä", "A", "aa", "", "\N{SNOWMAN}")] == [
        "first",
        "second",
        None,
        None,
        None,
        None,
    ]


async def test_static_tokens_may_be_given_by_their_hashes() -> None:
    """A hash, in digits of either case, admits its token, but not the hash itself."""
    digest = hashlib.sha256(b"s3cret").hexdigest()
    tokens = StaticTokens({"plain": "first"}, hashed={digest: "second", "AB" * 32: "third"})
    presented = ("plain", "s3cret", digest, f"sha256:{digest}", "AB" * 32)
    assert [await tokens(token) for token in presented] == ["first", "second", None, None, None]
    assert await StaticTokens(hashed={digest.upper(): "second"})("s3cret") == "second"
    assert await StaticTokens({})("") is None


@pytest.mark.parametrize("digest", ["", " ", "00", "g" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n"])
def test_a_hash_has_its_form(digest: str) -> None:
    """A hash that is not a SHA-256 in hexadecimal is refused when it is configured."""
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        StaticTokens(hashed={digest: "alice"})
    with pytest.raises(ValueError, match="blank"):
        StaticTokens(hashed={"0" * 64: " "})


async def test_static_tokens_are_all_compared_in_constant_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every token is compared by digest in constant time, whichever matches."""
    compared = note_comparisons(monkeypatch)
    hashed = {hashlib.sha256(b"token-4").hexdigest(): "p4"}
    tokens = StaticTokens({f"token-{n}": f"p{n}" for n in range(4)}, hashed=hashed)
    for presented in ("token-0", "token-4", "nothing"):
        compared.clear()
        await tokens(presented)
        assert len(compared) == 5
        assert {len(side) for pair in compared for side in pair} == {32}
