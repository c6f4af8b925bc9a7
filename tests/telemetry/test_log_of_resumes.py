"""The log of resumes that are refused: at info, unless the client has given up before."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import ArcpError, MemoryStore
from arcp_trio.testing import Peer, open_peers
from arcp_trio.transport import TransportClosed
from tests.stage import make_runtime

UNKNOWN = {"resume_token": "rt_unknown", "last_event_seq": 0}


class SlowStore(MemoryStore):
    """A store that finds the session of a token only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = trio.Event(), trio.Event()

    async def session_of_token(self, digest: bytes) -> str | None:
        """Look for the session, later."""
        self.asked.set()
        await self.may_answer.wait()
        return await super().session_of_token(digest)


async def resume(peer: Peer) -> None:
    """Try to resume a session that does not exist."""
    with suppress(ArcpError, TransportClosed):
        await peer.hello(resume=UNKNOWN)


@asynccontextmanager
async def resuming() -> AsyncGenerator[Peer]:
    """Have a client resume, and provide it while the store looks for its session."""
    store = SlowStore()
    async with make_runtime(store=store) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(resume, peer)
            await store.asked.wait()
            yield peer
            await wait_all_tasks_blocked()
            store.may_answer.set()
            await wait_all_tasks_blocked()  # else the runtime may end before it has refused


def refusals(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Return the levels at which refused sessions were logged."""
    return [line.levelno for line in caplog.records if line.message == "session refused"]


@pytest.mark.parametrize("gone", [False, True])
async def test_a_resume_that_is_refused(
    gone: object, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """A client that has gone meanwhile may have its session elsewhere by now."""
    caplog.set_level(logging.DEBUG)
    async with resuming() as peer:
        if gone:
            await peer.drop()
    assert refusals(caplog) == [logging.DEBUG if gone else logging.INFO]
