"""The life of a job: pending, running, one terminal (§7.3)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Agents, ArcpError, JobContext, JobError, Limits, MemoryStore, Runtime
from arcp_trio.store.queue import Group
from arcp_trio.store.writes import AcceptJob, FinishJob, StartJob, Write
from arcp_trio.testing import Peer, open_peer, open_peers
from arcp_trio.wire.json import Json
from tests.footprint import tasks_back_to
from tests.inside import job_of, live_jobs
from tests.metrics import scrape
from tests.stage import make_runtime


class Diary(MemoryStore):
    """A store that notes the statuses of every job, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: dict[str, list[str]] = {}

    def put(self, write: Write) -> Group:
        """Note the job's new status, and store the write."""
        match write:
            case AcceptJob():
                self.statuses[write.row.job_id] = [write.row.status]
            case StartJob():
                self.statuses[write.job_id].append("running")
            case FinishJob():
                self.statuses[write.job_id].append(write.status)
            case _:
                pass
        return super().put(write)


@pytest.mark.parametrize(
    ("agent", "fields", "kind", "status"),
    [
        ("echo", {}, "job.result", "success"),
        ("failing", {}, "job.error", "error"),
        ("sleeper", {"max_runtime_sec": 1}, "job.error", "timed_out"),
        ("cancelled", {}, "job.error", "cancelled"),
    ],
)
@pytest.mark.spec("7.3-1", "1.0/7.3-1")
async def test_a_job_is_pending_then_running_then_over(
    agent: str, fields: dict[str, Json], kind: str, status: str, autojump_clock: MockClock
) -> None:
    """Each job is pending, then running, then has one of the four final statuses."""
    store = Diary()
    async with make_runtime(store=store) as runtime, open_peer(runtime) as peer:

        @runtime.agent("failing")
        async def failing(_job: JobContext) -> Json:
            raise JobError("it cannot be done")

        @runtime.agent("cancelled")
        async def cancelled(job: JobContext) -> Json:
            await peer.send("job.cancel", {"job_id": job.id})
            await trio.sleep_forever()

        await peer.hello()
        job = await peer.submit(agent, **fields)
        end = await peer.until_terminal(job["job_id"])
        assert end["type"] == kind
        assert end["payload"]["final_status"] == status
        assert end["payload"]["completed_at"] >= job["accepted_at"]
        assert store.statuses[job["job_id"]] == ["pending", "running", status]


async def test_an_agent_is_running_when_it_looks(autojump_clock: MockClock) -> None:
    """A job is stored as running while its agent works, and with its final status afterwards."""
    store = MemoryStore()
    async with make_runtime(store=store) as runtime, open_peer(runtime) as peer:

        @runtime.agent("curious")
        async def curious(job: JobContext) -> Json:
            await store.flushed()
            row = await store.job(job.id)
            return None if row is None else str(row.status)

        await peer.hello()
        job = await peer.submit("curious")
        assert (await peer.until_terminal(job["job_id"]))["payload"]["result"] == "running"
        await trio.sleep(60)
        row = await store.job(job["job_id"])
        assert row is not None
        assert row.status == "success"


@pytest.mark.spec("7.5-7", "7.5-6")
async def test_a_running_job_keeps_its_version(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A version that is registered while a job runs is for later jobs only."""
    go_on = trio.Event()

    async def wait(job: JobContext) -> Json:
        await go_on.wait()
        return job.version

    runtime.agent("waiter", version="1")(wait)
    first = await peer.submit("waiter")
    runtime.agent("waiter", version="2")(wait)
    second = await peer.submit("waiter")
    go_on.set()
    assert (first["agent"], second["agent"]) == ("waiter@1", "waiter@2")
    for job, version in ((first, "1"), (second, "2")):
        assert (await peer.until_terminal(job["job_id"]))["payload"]["result"] == version


# -- one end, and nothing after it


async def test_nothing_can_be_emitted_after_the_end(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A context raises after its job's end, and nothing follows the terminal on the wire."""
    contexts: list[JobContext] = []

    @runtime.agent("leaky")
    async def leaky(job: JobContext) -> Json:
        contexts.append(job)
        await job.log("while it lasts")

    job = await peer.submit("leaky")
    await peer.until_terminal(job["job_id"])
    peer.seen.clear()
    for say in (contexts[0].log, contexts[0].thought, contexts[0].status):
        with pytest.raises(ArcpError):
            await say("too late")
    with trio.move_on_after(60):
        frame = await peer.receive()
        pytest.fail(f"after the end: {frame}")


async def test_ten_thousand_fast_jobs_leave_nothing_behind(autojump_clock: MockClock) -> None:
    """Ended jobs leave no tasks, no entries and no timers of `max_runtime_sec`."""
    async with (
        make_runtime(limits=Limits(jobs_per_principal=1000)) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        await peer.submit("echo")
        await peer.expect("job.result")
        await wait_all_tasks_blocked()
        statistics = trio.lowlevel.current_statistics()
        for _ in range(20):
            for _ in range(500):
                await peer.send("job.submit", {"agent": "echo", "max_runtime_sec": 3600})
            for _ in range(500):
                await peer.expect("job.result")
            peer.seen.clear()
        assert await tasks_back_to(statistics.tasks_living)
        assert not live_jobs(runtime)
        seconds = trio.lowlevel.current_statistics().seconds_to_next_deadline
        assert seconds <= statistics.seconds_to_next_deadline + 60


# -- who goes away


async def _close(peer: Peer) -> None:
    await peer.send("session.close", {"reason": "going"})
    await peer.expect("session.closed")


async def _fall_silent(peer: Peer) -> None:
    peer.answer_pings, peer.patience = False, 200
    await peer.expect("session.error", code="HEARTBEAT_LOST")


@pytest.mark.parametrize("leave", [_close, Peer.drop, Peer.close, _fall_silent])
@pytest.mark.spec("6.7-2", "6.4-5")
async def test_a_job_outlives_its_session_and_connection(
    runtime: Runtime,
    peer: Peer,
    leave: Callable[[Peer], Awaitable[None]],
    autojump_clock: MockClock,
) -> None:
    """A job runs to its own end after its session was closed, dropped or silent."""
    ends: list[str] = []

    @runtime.agent("worker")
    async def worker(job: JobContext) -> Json:
        for step in range(300):
            await trio.sleep(1)
            await job.progress(step, 300)
        ends.append(job.id)

    job = await peer.submit("worker")
    await leave(peer)
    await trio.sleep(200)
    assert scrape(runtime)("jobs", state="running") == 1
    await trio.sleep(101)
    assert ends == [job["job_id"]]
    assert scrape(runtime)("jobs_finished_total", outcome="success") == 1


async def test_another_submitter_gets_the_end_when_the_canceller_drops(
    runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A cancel ends the job for every submitter, even if its sender is gone at once."""
    async with open_peers(runtime) as peers:
        for _ in range(30):
            leaver, stayer = await peers.connect(), await peers.connect()
            for peer in (leaver, stayer):
                await peer.hello()
            key = leaver.session_id
            job = await leaver.submit("sleeper", idempotency_key=key)
            await stayer.submit("sleeper", idempotency_key=key)
            await leaver.send("job.cancel", {"job_id": job["job_id"]})
            await leaver.drop()
            end = await stayer.until_terminal(job["job_id"])
            assert end["payload"]["code"] == "CANCELLED"
            await stayer.close()


# -- a fresh context

connection_variable: ContextVar[str] = ContextVar("connection_variable", default="clean")


async def test_an_agent_inherits_nothing_from_the_connection(autojump_clock: MockClock) -> None:
    """An agent does not see context variables that were set while its client connected."""

    async def authenticate(_token: str) -> str:
        connection_variable.set("the connection's")
        return "alice"

    runtime = Runtime(auth=authenticate)

    @runtime.agent("looking")
    async def looking(_job: JobContext) -> Json:
        return connection_variable.get()

    connection_variable.set("the test's")
    async with runtime, open_peer(runtime) as peer:
        await peer.hello()
        job = await peer.submit("looking")
        assert (await peer.until_terminal(job["job_id"]))["payload"]["result"] == "clean"


async def test_agents_do_not_share_their_input(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """A job does not see what another does to its input and context variables."""

    @runtime.agent("spoiler")
    async def spoiler(job: JobContext) -> Json:
        before = (list(job.input["list"]), connection_variable.get())
        job.input["list"].append("spoilt")
        connection_variable.set("spoilt")
        return list(before)

    for _ in range(2):
        job = await peer.submit("spoiler", {"list": [1]})
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["result"] == [[1], "clean"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_ended_job_is_freed_without_a_collection(
    autojump_clock: MockClock, *, streamed: bool
) -> None:
    """An ended job is part of no cycle: its input and result do not wait for the collector."""
    jobs: list[weakref.ref[object]] = []
    streaming = Agents()

    @streaming.agent("worker")
    async def worker(job: JobContext) -> Json:
        jobs.append(weakref.ref(job_of(job)))
        await job.log("at work")
        if not streamed:
            return "done"
        async with job.stream_result() as out:
            await out.write("done")
        return None

    async with make_runtime(streaming) as runtime, open_peers(runtime) as peers:
        peer = await peers.connect()
        await peer.hello()
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                accepted = await peer.submit("worker")
                await peer.until_terminal(accepted["job_id"])
            await wait_all_tasks_blocked()
            alive = [job for job in jobs if job() is not None]
        finally:
            gc.enable()
    assert len(jobs) == 10
    assert not alive
