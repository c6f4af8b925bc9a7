"""A loop that an agent holds: it costs nobody a connection. In virtual time."""

from __future__ import annotations

import logging

import pytest
from trio.testing import MockClock

from arcp_trio import JobContext, Limits
from arcp_trio.testing import open_pair
from arcp_trio.testing.peer import TEST_TOKEN
from tests.metrics import scrape
from tests.sessions.support import open_stage
from tests.stage import make_runtime


async def test_the_runtime_does_not_count_it_as_silence(autojump_clock: MockClock) -> None:
    """A client that answers pings stays connected although the loop was held for long."""
    async with open_stage(heartbeat_seconds=5) as stage:

        @stage.runtime.agent("holder")
        async def holder(_job: JobContext) -> None:
            autojump_clock.jump(40)

        peer = await stage.welcomed()
        for _ in range(3):
            job = await peer.submit("holder")
            await peer.until_terminal(job["job_id"])
        assert scrape(stage.runtime)("connection_failures_total", reason="heartbeat_lost") == 0


async def test_nor_does_the_client(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that holds its own loop does not blame the runtime, and keeps its connection."""
    caplog.set_level(logging.DEBUG)
    async with make_runtime(limits=Limits(heartbeat_seconds=5)) as runtime:

        @runtime.agent("holder")
        async def holder(_job: JobContext) -> None:
            autojump_clock.jump(40)

        async with open_pair(runtime, token=TEST_TOKEN) as client:
            for _ in range(3):
                await (await client.submit("holder")).result()
    opened = [record.message for record in caplog.records if record.message.startswith("session")]
    assert opened.count("session opened") == 1
    assert "session resumed" not in opened


async def test_a_peer_that_stays_silent_is_lost_all_the_same(autojump_clock: MockClock) -> None:
    """After the loop was held, a peer has one interval to be heard."""
    async with open_stage(heartbeat_seconds=5) as stage:

        @stage.runtime.agent("holder")
        async def holder(_job: JobContext) -> None:
            autojump_clock.jump(40)

        peer = await stage.welcomed(answer_pings=False)
        await peer.submit("holder")
        await peer.expect("session.error", code="HEARTBEAT_LOST")
