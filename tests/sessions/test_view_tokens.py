"""Short-lived tokens as texts: signed, good for a time, also at another runtime with the key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from arcp_trio import (
    InternalError,
    JobNotFound,
    MemoryStore,
    PermissionDenied,
    ResumeWindowExpired,
    Runtime,
    SqliteStore,
    Store,
    Unauthenticated,
)
from arcp_trio.runtime.views import PREFIX, Scope, View, ViewTokens
from arcp_trio.testing import TrioClock, open_peers
from tests.sessions.views import KEY, listed, make, subscribed, welcomed
from tests.stage import TOKENS


@pytest.mark.parametrize("kept", ["in memory", "in SQLite"])
async def test_tokens_and_sessions_survive_a_restart(tmp_path: Path, kept: str) -> None:
    """With the same key a token is good at the next runtime, and its session is what it was."""
    memory = MemoryStore()

    def stored() -> Store:
        return memory if kept == "in memory" else SqliteStore(tmp_path / "arcp.db")

    async with make(stored()) as runtime, open_peers(runtime) as peers:
        owner = await welcomed(peers)
        one, other = [(await owner.submit("echo"))["job_id"] for _ in range(2)]
        token = runtime.token_for("alice", 600, one)
        looker = await welcomed(peers, token=token)
        resume = looker.resume_from()
    async with make(stored()) as runtime, open_peers(runtime) as peers:
        for wider in ("test-token", runtime.token_for("alice", 600)):
            with pytest.raises(ResumeWindowExpired):
                await welcomed(peers, token=wider, resume=resume)
        again = await welcomed(peers, token=token, resume=resume)
        assert await listed(again) == [one]
        with pytest.raises(JobNotFound):
            await subscribed(again, other)
        request = await again.send("job.submit", {"agent": "echo"})
        with pytest.raises(PermissionDenied):
            await again.answer("job.accepted", request)
    async with make(key=None) as runtime, open_peers(runtime) as peers:
        with pytest.raises(Unauthenticated, match="the token is not valid"):
            await welcomed(peers, token=token)


@pytest.mark.parametrize("seconds", [0, -1, 86_401, float("nan")])
async def test_a_time_that_is_refused(seconds: float) -> None:
    """A token is good for more than no time, and at most a day."""
    with pytest.raises(ValueError, match="a token is good for more than 0"):
        make().token_for("alice", seconds)


@pytest.mark.logs_error("no signing key")
async def test_a_key_that_cannot_be_read(autojump_clock: MockClock) -> None:
    """Without its key a runtime makes and takes no tokens, and asks for the key the next time."""
    keys: list[bytes] = []
    runtime = Runtime(auth=TOKENS, clock=TrioClock(), signing_key=keys.pop)
    async with runtime, open_peers(runtime) as peers:
        with pytest.raises(InternalError, match="has no key for short-lived tokens"):
            runtime.token_for("alice", 60)
        with pytest.raises(InternalError, match="has no key for short-lived tokens"):
            await welcomed(peers, token=PREFIX + "x.y")
        keys.append(KEY)
        await welcomed(peers, token=runtime.token_for("alice", 60))
        await welcomed(peers, token=runtime.token_for("alice", 60))


def test_what_cannot_sign() -> None:
    """A short key and an empty principal are refused."""
    with pytest.raises(ValueError, match="32 bytes or more"):
        make(key=b"short")
    with pytest.raises(ValueError, match="the name is empty"):
        make().token_for("", 60)


@given(st.text(min_size=1), st.none() | st.text(min_size=1), st.data())
def test_only_whole_tokens_are_read(
    principal: str, job_id: str | None, data: st.DataObject
) -> None:
    """A token says what was signed; with any character changed or cut off, it says nothing."""
    tokens, view = ViewTokens(KEY), View(principal, Scope(job_id), 9.5)
    token = tokens.sign(view)
    assert token.isascii()
    assert tokens.read(token, 9) == view
    with pytest.raises(Unauthenticated):
        tokens.read(token, 9.5)
    assert Scope.among({"ack", view.scope.feature}) == view.scope
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("aZ_.-=é").filter(lambda each: each != token[place]))
    for forged in (token[:place], token[:place] + other + token[place + 1 :]):
        assert tokens.read(forged, 0) is None
    assert ViewTokens(b"K" * 32).read(token, 0) is None


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    """A text that nobody has signed is not read as a view."""
    assert ViewTokens(KEY).read(PREFIX + text, 0) is None
    assert ViewTokens(KEY).read(text, 0) is None
