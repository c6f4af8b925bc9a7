"""Each metric exists from the start, and follows what it counts."""

from __future__ import annotations

from pathlib import Path

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Agents, JobContext, JobError, Limits, __version__
from arcp_trio.store.sqlite import SqliteStore
from arcp_trio.testing import open_peer
from tests.credentials.runtimes import LEASE, SafeStore, provided
from tests.credentials.upstream import Upstream, down
from tests.durability.support import agents
from tests.durable.stage import Life
from tests.inside import SWEEP_SECONDS
from tests.metrics import NAMING_PRINCIPALS, scrape
from tests.sessions.support import Stage, open_stage
from tests.stage import make_runtime

TYPES = {
    "arcp_connections": "gauge",
    "arcp_sessions": "gauge",
    "arcp_jobs": "gauge",
    "arcp_agent_threads": "gauge",
    "arcp_jobs_finished_total": "counter",
    "arcp_jobs_at_stop": "gauge",
    "arcp_durable_jobs": "gauge",
    "arcp_jobs_begun_again_total": "counter",
    "arcp_events_total": "counter",
    "arcp_event_bytes_total": "counter",
    "arcp_session_lag_events_max": "gauge",
    "arcp_evicted_events_total": "counter",
    "arcp_loop_stalls_total": "counter",
    "arcp_tail_bytes": "gauge",
    "arcp_held": "gauge",
    "arcp_held_most": "gauge",
    "arcp_used_most_total": "counter",
    "arcp_store_commit_seconds": "histogram",
    "arcp_refusals_total": "counter",
    "arcp_connection_failures_total": "counter",
    "arcp_credentials_outstanding": "gauge",
    "arcp_build_info": "gauge",
}


async def test_every_metric_is_there_from_the_beginning() -> None:
    """All documented metrics, and no others, exist from the start with their types."""
    async with open_stage() as stage:
        metrics = scrape(stage.runtime)
        assert {name: family.kind for name, family in metrics.families.items()} == TYPES
        # While nobody holds or has used anything, there is nobody to name.
        families = [
            each for each in metrics.families.values() if each.name not in NAMING_PRINCIPALS
        ]
        assert all(family.samples for family in families)
        assert metrics("build_info", version=__version__) == 1


# -- sessions and connections


async def test_connections_and_sessions_come_and_go(autojump_clock: MockClock) -> None:
    """The gauges of connections and sessions fall without traffic."""
    async with open_stage(resume_window_seconds=100) as stage:
        await stage.connect()  # sends nothing for now
        peer = await stage.welcomed()
        assert scrape(stage.runtime)("connections") == 2
        assert sessions(stage) == (1, 0)
        await peer.drop()
        await wait_all_tasks_blocked()
        assert scrape(stage.runtime)("connections") == 1
        assert sessions(stage) == (0, 1)
        peer = await stage.resumed(peer.resume_from())
        assert sessions(stage) == (1, 0)
        peer = await stage.resumed(peer.resume_from())  # takes the session over
        await wait_all_tasks_blocked()
        assert sessions(stage) == (1, 0)
        await peer.drop()
        await trio.sleep(100 + SWEEP_SECONDS)
        assert scrape(stage.runtime)("connections") == 0
        assert sessions(stage) == (0, 0)


def sessions(stage: Stage) -> tuple[float, float]:
    """Return how many sessions are connected, and parked."""
    metrics = scrape(stage.runtime)
    return metrics("sessions", state="connected"), metrics("sessions", state="parked")


async def test_a_session_that_something_is_in_hand_for_is_parked(autojump_clock: MockClock) -> None:
    """A session without a connection counts as parked while a slow store keeps it awake."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        stage.store.pause()
        await peer.send("job.submit", {"agent": "puppet"})
        await wait_all_tasks_blocked()
        await peer.drop()
        await wait_all_tasks_blocked()
        assert sessions(stage) == (0, 1)
        stage.store.go_on()


async def test_what_a_restart_finds_is_counted_at_once(tmp_path: Path) -> None:
    """After a restart, parked sessions and the ends of lost jobs are counted."""
    with trio.fail_after(30):
        async with make_runtime(agents, store=SqliteStore(tmp_path / "store")) as runtime:
            for _ in range(3):
                async with open_peer(runtime) as peer:
                    await peer.hello()
        store = SqliteStore(tmp_path / "store")
        await run_and_crash(store)
        async with make_runtime(agents, store=SqliteStore(tmp_path / "store")) as runtime:
            metrics = scrape(runtime)
            assert metrics("sessions", state="parked") == 4
            assert metrics("jobs_finished_total", outcome="error") == 1


async def run_and_crash(store: SqliteStore) -> None:
    """Run until a job is accepted, and store nothing after that."""
    async with make_runtime(agents, store=store) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        await peer.submit("stayer")
        await store.flushed()
        store.put = lambda write: store._taken  # type: ignore[method-assign]


# -- jobs and events


async def test_jobs_are_counted_until_they_end(autojump_clock: MockClock) -> None:
    """A job counts as pending, as running, and then by its final status."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        stage.store.pause()
        await peer.send("job.submit", {"agent": "puppet"})
        await wait_all_tasks_blocked()
        assert jobs(stage) == (1, 0)
        stage.store.go_on()
        await peer.expect("job.accepted")
        assert jobs(stage) == (0, 1)
        await stage.puppet.finish()
        assert jobs(stage) == (0, 0)
        assert scrape(stage.runtime)("jobs_finished_total", outcome="success") == 1


def jobs(stage: Stage) -> tuple[float, float]:
    """Return how many jobs are pending, and running."""
    metrics = scrape(stage.runtime)
    return metrics("jobs", state="pending"), metrics("jobs", state="running")


async def test_each_outcome_has_its_counter(autojump_clock: MockClock) -> None:
    """An error, a timeout and two cancellations are counted by their status."""
    async with open_stage() as stage:

        @stage.runtime.agent("failer")
        async def failer(_job: JobContext) -> None:
            raise JobError("no")

        peer = await stage.welcomed()
        failing = await peer.submit("failer")
        slow = await peer.submit("sleeper", 100, max_runtime_sec=1)
        for _ in range(2):
            job = await peer.submit("sleeper", 100)
            await peer.send("job.cancel", {"job_id": job["job_id"]})
            await peer.until_terminal(job["job_id"])
        for job in (failing, slow):
            await peer.until_terminal(job["job_id"])
        outcomes = ("success", "error", "cancelled", "timed_out")
        metrics = scrape(stage.runtime)
        ends = [metrics("jobs_finished_total", outcome=outcome) for outcome in outcomes]
        assert ends == [0, 1, 2, 1]


async def test_events_are_counted_with_their_bytes(autojump_clock: MockClock) -> None:
    """Each event is counted once with its bytes; terminals are not."""
    async with open_stage() as stage:
        peer = await stage.welcomed()
        for number in (0, 5, 70):
            job = await peer.submit("chatty", number)
            await peer.until_terminal(job["job_id"])
        metrics = scrape(stage.runtime)
        assert metrics("events_total") == 75
        assert 75 * 1_000 < metrics("event_bytes_total") < 75 * 1_400


async def test_durable_jobs_are_counted_by_what_they_wait_for(autojump_clock: MockClock) -> None:
    """They run, wait for their turn after a restart, and are suspended at the runtime's end."""
    durable_agents = Agents()

    @durable_agents.agent("sleeper", durable=True)
    async def sleeper(job: JobContext) -> None:
        await job.sleep(1_000)

    async with Life.begin(durable_agents) as life:
        for _ in range(3):
            await life.peer.submit("sleeper")
        await trio.sleep(1)
        assert durable(life) == (3, 0, 0)
        left = life.killed()
    limits = Limits(jobs_begun_per_second=1)
    async with Life.begin(durable_agents, left, before=life, limits=limits) as life:
        await trio.sleep(0.5)
        assert durable(life) == (1, 2, 0)
        await trio.sleep(3)
        assert durable(life) == (3, 0, 0)
        assert scrape(life.runtime)("jobs_begun_again_total") == 3
        await life.runtime.shutdown()
        assert durable(life) == (0, 0, 3)


def durable(life: Life) -> tuple[float, ...]:
    """Return how many durable jobs run, wait, and are suspended."""
    states = ("running", "waiting", "suspended")
    return tuple(scrape(life.runtime)("durable_jobs", state=state) for state in states)


# -- credentials


async def test_credentials_count_until_they_are_revoked(autojump_clock: MockClock) -> None:
    """A credential counts after its job's end until the upstream has revoked it."""
    upstream = Upstream()
    async with provided(upstream, SafeStore()) as (runtime, peer):
        assert scrape(runtime)("credentials_outstanding") == 0
        job = await peer.submit("sleeper", lease_request=LEASE)
        assert scrape(runtime)("credentials_outstanding") == 1
        upstream.failing = down("revoke")
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        await peer.until_terminal(job["job_id"])
        assert scrape(runtime)("credentials_outstanding") == 1
        assert scrape(runtime)("jobs", state="running") == 0
        upstream.failing = down(times=0)
        await trio.sleep(120)
        assert scrape(runtime)("credentials_outstanding") == 0
