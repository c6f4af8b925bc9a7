"""What the metrics show about clients that are behind, and about the store."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.testing import open_peer
from tests.durability.support import FailingStore, agents
from tests.flow.support import QUIET, ack, open_flow, read_to
from tests.metrics import scrape
from tests.sessions.support import open_stage
from tests.stage import make_runtime

# -- clients that are behind


async def test_lag_and_tail_rise_with_who_does_not_read(autojump_clock: MockClock) -> None:
    """Lag and unsent bytes rise for a client that does not read, and fall to zero."""
    async with open_flow() as flow:
        peer = await flow.connect()
        await peer.hello(features=("progress",))
        await peer.submit("tap")
        flow.tap.size = 1_000
        await flow.tap.let_out(5_000)
        metrics = scrape(flow.runtime)
        assert 4_000 < metrics("session_lag_events_max") <= 5_000
        assert 1_000_000 < metrics("tail_bytes") < 6_000_000
        await read_to(peer, 5_000)
        await wait_all_tasks_blocked()
        assert scrape(flow.runtime)("session_lag_events_max") == 0
        assert scrape(flow.runtime)("tail_bytes") == 0
        await flow.tap.let_out(5_000)
        assert scrape(flow.runtime)("tail_bytes") > 0
        await peer.drop()
        await wait_all_tasks_blocked()
        assert scrape(flow.runtime)("session_lag_events_max") == 0
        assert scrape(flow.runtime)("tail_bytes") == 0


async def test_lag_beyond_what_is_numbered_counts(autojump_clock: MockClock) -> None:
    """The lag includes events that have no number yet."""
    async with open_flow(tail_frames=50, outbox_items=10) as flow:
        peer = await flow.welcomed()
        await peer.submit("tap")
        flow.tap.size = 1_000
        await flow.tap.let_out(3_000)
        assert 2_500 < scrape(flow.runtime)("session_lag_events_max") <= 3_000


@pytest.mark.spec("6.5-2")
async def test_who_acknowledges_lags_until_it_has(autojump_clock: MockClock) -> None:
    """For a client that acknowledges, sent events count until they are acknowledged."""
    async with open_flow() as flow:
        peer = await flow.welcomed()
        await peer.submit("tap")
        await flow.tap.let_out(100)
        await read_to(peer, 100)
        assert scrape(flow.runtime)("session_lag_events_max") == 0
        await ack(peer, 40)
        await wait_all_tasks_blocked()
        assert scrape(flow.runtime)("session_lag_events_max") == 60
        await ack(peer, 100)
        await wait_all_tasks_blocked()
        assert scrape(flow.runtime)("session_lag_events_max") == 0


async def test_what_a_full_journal_gives_up_is_counted(autojump_clock: MockClock) -> None:
    """Events that a full journal gives up are counted."""
    async with open_flow(journal_bytes=100_000) as flow:
        peer = await flow.welcomed()
        job_id = (await peer.submit("tap"))["job_id"]
        await peer.drop()
        flow.tap.size = 1_000
        await flow.tap.let_out(1_000)
        left = len(flow.store._tables.journals[job_id].entries)
        assert scrape(flow.runtime)("evicted_events_total") == 1_000 - left > 800


async def test_numbers_beyond_the_bound_are_counted(autojump_clock: MockClock) -> None:
    """Numbers that are given up past `unacked_frames` are counted."""
    async with open_flow(unacked_frames=300) as flow:
        peer = await flow.connect()
        await peer.hello(features=QUIET)
        await peer.submit("tap")
        await flow.tap.let_out(1_000)
        await read_to(peer, 1_000)
        assert scrape(flow.runtime)("evicted_events_total") == 700


# -- the store


async def test_commits_are_timed(autojump_clock: MockClock) -> None:
    """A commit of three seconds is in the buckets from five seconds on."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        before = scrape(stage.runtime)
        assert before("store_commit_seconds_count") > 0
        assert before("store_commit_seconds_sum") == 0
        stage.store.pause()
        await peer.send("job.submit", {"agent": "puppet"})
        await trio.sleep(3)
        stage.store.go_on()
        await peer.expect("job.accepted")
        after = scrape(stage.runtime)
        assert after("store_commit_seconds_sum") == 3
        slow = [
            after("store_commit_seconds_bucket", le="+Inf")
            - after("store_commit_seconds_bucket", le=bound)
            for bound in ("2.5", "5")
        ]
        assert slow == [1, 0]


@pytest.mark.logs_error("store")
async def test_a_commit_that_fails_counts_with_all_of_its_tries(autojump_clock: MockClock) -> None:
    """A commit that is tried again is timed from its first try."""
    store = FailingStore()
    async with make_runtime(agents, store=store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        store.broken = True
        await peer.send("job.submit", {"agent": "stayer"})
        await trio.sleep(20)
        store.broken = False
        await trio.sleep(5)
        assert 20 <= scrape(runtime)("store_commit_seconds_sum") <= 25


async def test_sqlite_is_timed_as_well(tmp_path: Path) -> None:
    """Commits of SQLite take a time above zero."""
    with trio.fail_after(30):
        async with make_runtime(agents, store=SqliteStore(tmp_path / "store")) as runtime:
            async with open_peer(runtime) as peer:
                await peer.hello()
            metrics = scrape(runtime)
            assert metrics("store_commit_seconds_count") >= 1
            assert metrics("store_commit_seconds_sum") > 0
