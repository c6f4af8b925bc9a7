"""Past `failed_auth_per_minute` wrong tokens, further hellos of an address are refused."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import Runtime
from arcp_trio.runtime import access
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.errors import PermissionDenied, Unauthenticated
from tests.inside import SWEEP_SECONDS, counted_addresses
from tests.limits.support import peer_at
from tests.reading import refusal
from tests.sessions.support import open_stage
from tests.stage import hello_payload

HERE, THERE = "192.0.2.1", "192.0.2.2"


async def told(runtime: Runtime, peer: str, token: str = "wrong") -> str:
    """Return the code or the limit with which a hello with this token is refused."""
    async with peer_at(runtime, peer) as client:
        await client.send("session.hello", hello_payload(token=token))
        return name_of(await refusal(client))


def name_of(words: Frame) -> str:
    """Return the limit of a refusal, which must be retryable then, or its code."""
    if "details" in words:
        assert words["code"] == "INTERNAL_ERROR"
        assert words["retryable"] is True
        assert words["details"] == {"limit": "failed_auth_per_minute", "max": 3}
        return "failed_auth_per_minute"
    code: str = words["code"]
    return code


async def test_too_many_wrong_tokens_are_refused_by_the_limit(autojump_clock: MockClock) -> None:
    """Wrong tokens from any port of an address count; a good token is served."""
    async with open_stage(failed_auth_per_minute=3) as stage:
        codes = [await told(stage.runtime, f"{HERE}:{port}") for port in range(5)]
        assert codes == ["UNAUTHENTICATED"] * 3 + ["failed_auth_per_minute"] * 2
        async with peer_at(stage.runtime, f"{HERE}:99") as client:
            await client.hello(token=TEST_TOKEN)
        assert await told(stage.runtime, f"{THERE}:1") == "UNAUTHENTICATED"
        assert await told(stage.runtime, f"{HERE}:1") == "failed_auth_per_minute"


async def test_a_minute_later_it_begins_anew(autojump_clock: MockClock) -> None:
    """The count begins anew a minute after its first wrong token."""
    async with open_stage(failed_auth_per_minute=3) as stage:
        for _ in range(3):
            for _ in range(3):
                assert await told(stage.runtime, HERE) == "UNAUTHENTICATED"
            for _ in range(5):
                await trio.sleep(11)
                assert await told(stage.runtime, HERE) == "failed_auth_per_minute"
            await trio.sleep(5)


@pytest.mark.parametrize(
    "changes",
    [
        {"auth": None},
        {"auth": {"scheme": "bearer"}},
        {"auth": {"scheme": "bearer", "token": " "}},
        {"auth": {"scheme": "basic", "token": "wrong"}},
        {"auth": 7},
        {"resume": {"session_id": "s", "resume_token": "rt_wrong", "last_event_seq": 0}},
    ],
)
async def test_only_a_wrong_token_counts(changes: Frame, autojump_clock: MockClock) -> None:
    """A missing token, another scheme, a bad frame and a bad resume do not count."""
    async with open_stage(failed_auth_per_minute=3) as stage:
        for _ in range(10):
            async with peer_at(stage.runtime, HERE) as client:
                await client.send("session.hello", hello_payload() | changes)
                assert name_of(await refusal(client)) != "failed_auth_per_minute"
        assert await told(stage.runtime, HERE) == "UNAUTHENTICATED"


async def test_an_authenticator_may_say_why(autojump_clock: MockClock) -> None:
    """An authenticator's UNAUTHENTICATED counts as a wrong token; other errors do not."""

    async def authenticate(token: str) -> str | None:
        raise Unauthenticated("expired") if token == "wrong" else PermissionDenied("not you")

    async with open_stage(auth=authenticate, failed_auth_per_minute=3) as stage:
        for _ in range(5):
            assert await told(stage.runtime, HERE, "denied") == "PERMISSION_DENIED"
        codes = [await told(stage.runtime, HERE) for _ in range(4)]
        assert codes == ["UNAUTHENTICATED"] * 3 + ["failed_auth_per_minute"]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("192.0.2.1:5", "192.0.2.1:6", True),
        ("[2001:db8::1]:5", "[2001:db8::1]:6", True),
        ("[2001:db8::1]:5", "[2001:db8::2]:5", True),  # in one /64 network
        ("[2001:db8::1]:5", "[2001:db8:0:1::1]:5", False),
        ("[fe80::1%eth0]:5", "[fe80::2%eth0]:5", True),
        ("192.0.2.1:5", "192.0.2.11:5", False),
        ("unix", "unix", True),
        ("stdio", "unix", False),
    ],
)
async def test_an_address_is_a_peer_without_its_port(
    first: str, second: str, autojump_clock: MockClock, *, same: bool
) -> None:
    """An address is a peer without its port; peers without an address share one."""
    async with open_stage(failed_auth_per_minute=3) as stage:
        for _ in range(3):
            await told(stage.runtime, first)
        code = await told(stage.runtime, second)
        assert code == ("failed_auth_per_minute" if same else "UNAUTHENTICATED")


async def test_what_is_counted_is_forgotten_with_no_traffic(autojump_clock: MockClock) -> None:
    """Counts are dropped without traffic, at the latest with the sweep after their minute."""
    async with open_stage(failed_auth_per_minute=3) as stage:
        for n in range(20):
            await told(stage.runtime, f"192.0.2.{n}:1")
            await trio.sleep(1)
        assert counted_addresses(stage.runtime) == 20
        await trio.sleep(60 - 20 + 10 + SWEEP_SECONDS)
        assert 0 < counted_addresses(stage.runtime) <= 10
        await trio.sleep(10)
        assert counted_addresses(stage.runtime) == 0


async def test_the_table_is_bounded(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more addresses than are kept, the latest are counted."""
    monkeypatch.setattr(access, "MOST_ADDRESSES", 10)
    counts = access.WrongTokens()
    for n in range(1_000):
        assert counts.count(f"address {n}") == 1
    assert len(counts._counted) == 10
    assert counts.count("address 999") == 2
    assert counts.count("address 0") == 1


async def test_who_begins_anew_is_behind_the_others(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address whose second minute begins moves to the end of the table."""
    monkeypatch.setattr(access, "MOST_ADDRESSES", 3)
    counts = access.WrongTokens()
    assert counts.count("again") == 1
    await trio.sleep(30)
    assert counts.count("once") == 1
    await trio.sleep(31)
    assert counts.count("again") == 1
    assert counts.count("new") == 1
    assert counts.count("newer") == 1  # replaces the address whose minute began first
    assert counts.count("again") == 2


async def test_wrong_tokens_are_answered_later_and_later(autojump_clock: MockClock) -> None:
    """The more wrong tokens an address sends, the later they are answered, and no others."""
    async with open_stage() as stage:
        waits: list[float] = []
        for _ in range(30):
            began = trio.current_time()
            assert await told(stage.runtime, f"{HERE}:1") == "UNAUTHENTICATED"
            waits.append(round(trio.current_time() - began, 1))
        assert waits[:7] == [0, 0, 0, 0, 0, 0.1, 0.2]
        assert waits == sorted(waits)
        assert waits[-1] == 2
        began = trio.current_time()
        async with peer_at(stage.runtime, f"{HERE}:1") as client:
            await client.hello(token=TEST_TOKEN)
        assert await told(stage.runtime, f"{THERE}:1") == "UNAUTHENTICATED"
        assert trio.current_time() == began
