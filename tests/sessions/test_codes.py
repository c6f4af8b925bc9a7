"""One-time codes: exchanged once, in time, at the node that made them, for a token."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError, InvalidRequest, PermissionDenied, Runtime, Unauthenticated
from arcp_trio.testing import Peer, PeerFactory, open_pair, open_peers
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.sessions.views import listed, make, welcomed
from tests.stage import BOB

TELLS = "x-vendor.arcp-trio."


@pytest.fixture
async def runtime() -> AsyncGenerator[Runtime]:
    """An entered runtime."""
    async with make() as entered:
        yield entered


@pytest.fixture
async def peers(runtime: Runtime) -> AsyncGenerator[PeerFactory]:
    """What connects raw clients to the runtime."""
    async with open_peers(runtime) as factory:
        yield factory


async def code_of(peer: Peer, seconds: float = 60, token: str = TEST_TOKEN) -> str:
    """Return a code that a client has asked for."""
    asked = {"seconds": seconds, "replaces": token}
    request = await peer.send(f"{TELLS}token", asked)
    made = await peer.answer(f"{TELLS}token_made", request)
    code: str = made["token"]
    return code


async def test_a_code_is_good_once(peers: PeerFactory, autojump_clock: MockClock) -> None:
    """A code opens a session like its token, and the welcome tells the token; then it is gone."""
    owner = await welcomed(peers)
    job_id = (await owner.submit("sleeper"))["job_id"]
    code = await code_of(owner)
    assert TEST_TOKEN not in code
    page = await peers.connect()
    welcome = (await page.hello(token=code, features=CLIENT_FEATURES))["payload"]
    assert welcome[f"{TELLS}token"] == TEST_TOKEN
    assert welcome[f"{TELLS}principal"] == "alice"
    assert await listed(page) == [job_id]
    with pytest.raises(Unauthenticated, match="good once, for a minute, at the node that made it"):
        await welcomed(peers, token=code)
    plain = await peers.connect()
    welcome = (await plain.hello())["payload"]
    assert not [name for name in welcome if name.startswith(TELLS)]


async def test_a_code_is_good_for_a_minute(peers: PeerFactory, autojump_clock: MockClock) -> None:
    """A code is exchanged until its time is over, and no longer."""
    owner = await welcomed(peers)
    early, late, short = [await code_of(owner, seconds) for seconds in (60, 60, 5)]
    await trio.sleep(6)
    with pytest.raises(Unauthenticated):
        await welcomed(peers, token=short)
    await trio.sleep(53)
    await welcomed(peers, token=early)
    await trio.sleep(2)
    with pytest.raises(Unauthenticated):
        await welcomed(peers, token=late)
    again = await welcomed(peers)
    for seconds in (0, 61):
        with pytest.raises(InvalidRequest, match="at most 60 seconds"):
            await code_of(again, seconds)


async def test_codes_of_a_principal_are_bounded(
    peers: PeerFactory, autojump_clock: MockClock
) -> None:
    """The ninth open code is refused to its principal, until one is used or its time is over."""
    owner, bob = await welcomed(peers), await welcomed(peers, token=BOB)
    first, *_ = [await code_of(owner) for _ in range(8)]
    with pytest.raises(InternalError, match="one_time_codes"):
        await code_of(owner)
    await code_of(bob)
    await welcomed(peers, token=first)
    await code_of(owner)
    with pytest.raises(InternalError, match="one_time_codes"):
        await code_of(owner)
    await trio.sleep(61)
    await code_of(await welcomed(peers))


async def test_a_code_is_as_good_as_its_token(
    runtime: Runtime, peers: PeerFactory, autojump_clock: MockClock
) -> None:
    """A code for a wrong token opens nothing, and another node knows no code of this one."""
    owner = await welcomed(peers)
    wrong = await code_of(owner, token="wrong")
    with pytest.raises(Unauthenticated, match="the token is not valid"):
        await welcomed(peers, token=wrong)
    view = runtime.token_for("alice", 60)
    looker = await welcomed(peers, token=await code_of(owner, token=view))
    request = await looker.send("job.submit", {"agent": "echo"})
    with pytest.raises(PermissionDenied):
        await looker.answer("job.accepted", request)
    code = await code_of(owner)
    async with make() as other, open_peers(other) as others:
        with pytest.raises(Unauthenticated, match="at the node that made it"):
            await welcomed(others, token=code)


async def test_the_client_asks_for_a_code(runtime: Runtime, autojump_clock: MockClock) -> None:
    """`code_for` returns a code with which a session is opened; views have no codes."""
    async with open_pair(runtime) as client:
        code = await client.code_for(TEST_TOKEN)
        async with open_pair(runtime, token=code) as page:
            assert await (await page.submit("echo", 3)).result() == 3
        async with open_pair(runtime, token=await client.token_for(60)) as looker:
            with pytest.raises(InvalidRequest):
                await looker.code_for(TEST_TOKEN)
