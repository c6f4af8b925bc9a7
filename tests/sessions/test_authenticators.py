"""Authenticators: which principal they name, and what happens when they fail (§6.1)."""

from __future__ import annotations

import hashlib
import time

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Authenticator, Principal, StaticTokens
from arcp_trio.testing import Peer
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.errors import JobNotFound, PermissionDenied
from tests.reading import close_code, refusal
from tests.sessions.support import Stage, note_comparisons, open_stage
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


# -- tokens that are no longer good


class Changing:
    """An authenticator whose tokens change: one that can say what is still good."""

    def __init__(self, tokens: dict[str, str]) -> None:
        self.now = StaticTokens(tokens)

    async def __call__(self, token: str) -> str | None:
        """Ask the tokens that there are now."""
        return await self.now(token)

    async def still_good(self, principal: Principal) -> bool:
        """Ask the tokens that there are now."""
        return await self.now.still_good(principal)


async def resume_alone(stage: Stage, gone: Peer) -> Peer:
    """Connect, and resume a client's session by its resume token alone."""
    peer = await stage.connect()
    await peer.send("session.resume", gone.resume_from())
    return peer


async def refused_alone(stage: Stage, gone: Peer) -> str:
    """Return the code with which a resume by the resume token alone is refused."""
    return str((await refusal(await resume_alone(stage, gone)))["code"])


@pytest.mark.spec("12-6")
async def test_sessions_end_with_their_tokens(autojump_clock: MockClock) -> None:
    """Connections whose token is no longer good end; their sessions take another token."""
    auth = Changing({"old": "alice", "bob": "bob"})
    async with open_stage(auth=auth) as stage:
        parked, live = await stage.welcomed(token="old"), await stage.welcomed(token="old")
        other = await stage.welcomed(token="bob")
        await parked.drop()
        auth.now = StaticTokens({"new": "alice", "bob": "bob"})
        stage.runtime.recheck_tokens()
        assert (await refusal(live))["code"] == "UNAUTHENTICATED"
        for gone in (parked, live):
            assert await refused_alone(stage, gone) == "UNAUTHENTICATED"
            again = await stage.welcomed(token="new", resume=gone.resume_from())
            assert again.session_id == gone.session_id
            await again.drop()
            assert (await (await resume_alone(stage, again)).receive())["type"] == "session.welcome"
        assert (await stage.refused(other.resume_from(), token="new"))["code"] != "UNAUTHENTICATED"
        await other.submit("sleeper", 0)


async def test_a_token_of_another_principal_is_not_the_sessions(autojump_clock: MockClock) -> None:
    """A token that goes to somebody else ends the sessions that it has opened."""
    auth = Changing({"token": "alice"})
    async with open_stage(auth=auth) as stage:
        peer = await stage.welcomed(token="token")
        auth.now = StaticTokens({"token": "bob"})
        stage.runtime.recheck_tokens()
        assert (await refusal(peer))["code"] == "UNAUTHENTICATED"
        assert await refused_alone(stage, peer) == "UNAUTHENTICATED"


async def test_who_cannot_be_asked_about_presents_the_token_again(
    autojump_clock: MockClock,
) -> None:
    """A plain function is asked with the token itself: at each resume, and after each recheck."""
    known = {"a": "alice", "b": "bob"}

    async def plain(token: str) -> str | None:
        return known.get(token)

    async with open_stage(auth=plain) as stage:
        ann = await stage.welcomed(token="a", features=())
        ben = await stage.welcomed(token="b", features=())
        del known["a"]
        await trio.sleep(1000)
        await ann.submit("sleeper", 0)
        stage.runtime.recheck_tokens()
        assert await close_code(ann) == await close_code(ben) == 1012
        assert await refused_alone(stage, ben) == "UNAUTHENTICATED"
        assert (await stage.refused(ann.resume_from(), token="a"))["code"] == "UNAUTHENTICATED"
        assert (await stage.welcomed(token="b", resume=ben.resume_from())).session_id


async def test_a_session_ends_when_its_token_expires(autojump_clock: MockClock) -> None:
    """At its time a connection ends, and a resume takes a token that is good for longer."""
    now = time.time()

    async def timed(token: str) -> Principal:
        return Principal("alice", expires_at=now + float(token))

    async with open_stage(auth=timed) as stage:
        began = trio.current_time()
        peer = await stage.welcomed(token="100")
        assert (await refusal(peer))["code"] == "UNAUTHENTICATED"
        assert trio.current_time() - began == pytest.approx(100, abs=10)
        assert await refused_alone(stage, peer) == "UNAUTHENTICATED"
        again = await stage.welcomed(token="400", resume=peer.resume_from())
        assert again.session_id == peer.session_id
        assert (await refusal(again))["code"] == "UNAUTHENTICATED"
        assert trio.current_time() - began == pytest.approx(400, abs=10)


@pytest.mark.logs_error("authenticator failed")
async def test_an_authenticator_that_fails_ends_no_session(autojump_clock: MockClock) -> None:
    """While the authenticator cannot say, connections go on and a resume may be tried again."""

    class Failing(Changing):
        async def still_good(self, principal: Principal) -> bool:
            raise OSError("secret")

    auth: Authenticator = Failing({"a": "alice"})
    async with open_stage(auth=auth) as stage:
        peer = await stage.welcomed(token="a")
        stage.runtime.recheck_tokens()
        await peer.submit("sleeper", 0)
        await peer.drop()
        assert await refused_alone(stage, peer) == "INTERNAL_ERROR"
