"""A node that ends in order, while others are up, leaves to them what can go on elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import psycopg
import pytest
import trio

from arcp_trio import Agents, InternalError, JobContext, Json, Runtime
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.records import Recovered
from arcp_trio.testing import Peer, WireRecorder
from tests.cluster.leaving import (
    QUICK,
    agents,
    closed,
    goes_on_at,
    has_stepped,
    other_known,
    waiting_job,
    where,
)
from tests.cluster.side_by_side import clients_of, nodes_over, runtime_over

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

napping = Agents()


@napping.agent("napper", durable=True)
async def napper(job: JobContext) -> None:
    """Say something, then sleep."""
    await job.log("begun")
    await job.sleep(600)


async def test_clients_and_durable_jobs_go_on_at_once(database: str) -> None:
    """Clients are sent away with 1012; a job that cannot move ends within the drain, seen there."""
    held, may_end = Agents(), trio.Event()

    @held.agent("held")
    async def hold(_job: JobContext) -> None:
        await may_end.wait()

    async with nodes_over(database, others=[agents, held], limits=QUICK) as (leaver, other):
        with trio.fail_after(60):
            await other_known(leaver)
            client = await leaver.welcomed()
            short = (await client.submit("held"))["job_id"]
            await client.submit("echo")
            durable = (await client.submit("steps", 60))["job_id"]
            await has_stepped(leaver, durable)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(leaver.runtime.shutdown, drain=30))
                assert await closed(client) == 1012
                assert leaver.runtime.ready() == "shutting down"
                again = await other.welcomed(resume=client.resume_from())
                may_end.set()
                first = await again.until_terminal(short)
                assert first["type"] == "job.result"
            end = await again.until_terminal(durable)
            assert end["payload"]["result"] == sum(range(60))
            assert await where(database, durable) == "n1"


async def begun(client: Peer) -> str:
    """Submit a durable job that goes on for long, and return its id once its agent is at work."""
    job_id = str((await client.submit("napper"))["job_id"])
    await client.expect("job.event", job_id=job_id)
    return job_id


async def status_of(client: Peer, job_id: str) -> Json:
    """Return the next event of a job, which is a status."""
    event = (await client.expect("job.event", job_id=job_id))["payload"]
    assert event["kind"] == "status"
    body: Json = event["body"]
    return body


async def test_clients_are_told_that_a_job_has_moved(database: str) -> None:
    """The status event of a job that was left to another node says that it goes on there."""
    async with nodes_over(database, others=[napping], limits=QUICK) as (leaver, other):
        with trio.fail_after(60):
            client = await leaver.welcomed()
            job_id = await begun(client)
            await other_known(leaver)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(leaver.runtime.shutdown)
                assert await closed(client) == 1012
            again = await other.welcomed(resume=client.resume_from())
            assert await status_of(again, job_id) == {
                "phase": "resumed",
                "message": "the job goes on at another node",
                "run": 2,
            }


async def test_clients_are_told_that_a_runtime_was_restarted(database: str) -> None:
    """The status event of a job says so if a runtime of the same name goes on with it."""
    await trio.to_thread.run_sync(make_schema, database, None)
    recorder = WireRecorder()
    first, a = runtime_over(database, "a", napping, limits=QUICK)
    second, b = runtime_over(database, "a", napping, limits=QUICK)
    with trio.fail_after(60):
        async with first, clients_of(first, a, recorder) as node:
            client = await node.welcomed()
            job_id = await begun(client)
        async with second, clients_of(second, b, recorder) as node:
            again = await node.welcomed(resume=client.resume_from())
            assert await status_of(again, job_id) == {
                "phase": "resumed",
                "message": "the runtime was restarted",
                "run": 2,
            }


async def test_a_durable_job_waits_for_its_agent(database: str) -> None:
    """A job that no other node could begin again goes on once there is one that can."""
    async with waiting_job(database) as (client, job_id):
        await goes_on_at("c", database, client, job_id)


async def test_a_durable_job_waits_for_no_longer_than_that(database: str) -> None:
    """After `orphan_seconds` the job ends, and says which agent is missing."""
    async with waiting_job(database, attrs.evolve(QUICK, orphan_seconds=2)) as (client, job_id):
        end = await client.until_terminal(job_id)
        assert end["payload"]["code"] == "AGENT_NOT_AVAILABLE"


async def test_a_node_that_has_just_joined_takes_clients(database: str) -> None:
    """A node that ends before it has seen the newer one by its beats sends its clients there."""
    rare = attrs.evolve(QUICK, node_seconds=600)
    await trio.to_thread.run_sync(make_schema, database, None)
    recorder = WireRecorder()
    first, a = runtime_over(database, "a", limits=rare)
    second, b = runtime_over(database, "b", limits=rare)
    with trio.fail_after(60):
        async with first, clients_of(first, a, recorder) as leaver:
            client = await leaver.welcomed()
            async with second, clients_of(second, b, recorder) as other:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(leaver.runtime.shutdown)
                    assert await closed(client) == 1012
                await other.welcomed(resume=client.resume_from())


async def test_a_job_that_waits_counts(database: str) -> None:
    """A job that waits for a node counts towards `jobs_per_principal`, also at a new node."""
    limits = attrs.evolve(QUICK, jobs_per_principal=1)
    async with waiting_job(database, limits):
        third, c = runtime_over(database, "c", limits=limits)
        async with third, clients_of(third, c, WireRecorder()) as newest:
            client = await newest.welcomed()
            with pytest.raises(InternalError) as refusal:
                await submit_again_and_again(client)
            assert refusal.value.details["limit"] == "jobs_per_principal"


async def test_a_job_that_was_taken_counts_once(database: str) -> None:
    """A job that a node has taken no longer counts there among those that wait for a node."""
    limits = attrs.evolve(QUICK, jobs_per_principal=1, node_seconds=600)
    async with waiting_job(database, limits) as (follower, job_id):
        third, c = runtime_over(database, "c", agents, limits=limits)
        async with third, clients_of(third, c, WireRecorder()) as newest:
            client = await newest.welcomed()
            await follower.until_terminal(job_id)
            await client.submit("echo")


async def submit_again_and_again(client: Peer) -> None:
    """Have one short job after the other, until one is refused."""
    while True:
        await client.until_terminal((await client.submit("echo"))["job_id"])
        await trio.sleep(0.2)


class Steps(trio.abc.Instrument):
    """Counts how often each task was run, by name."""

    def __init__(self) -> None:
        self.by_task = Counter[str]()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a task that is about to run."""
        self.by_task[task.name] += 1


async def test_a_node_that_drains_is_idle(database: str) -> None:
    """A node that takes no more jobs does nothing about it while its own ones go on."""
    steps = Steps()
    async with nodes_over(database, 1, limits=QUICK) as (node,):
        with trio.fail_after(60):
            await (await node.welcomed()).submit("pause", 3)
            trio.lowlevel.add_instrument(steps)
            await node.runtime.shutdown(drain=30)
            assert 0 < steps.by_task["jobs that wait for a node"] < 20


@asynccontextmanager
async def taking(monkeypatch: pytest.MonkeyPatch, database: str) -> AsyncGenerator[Runtime]:
    """Run a node that is about to end and has just taken a job, with which it goes on later."""
    runtime, store = runtime_over(database, "c", agents, limits=QUICK)
    take, taken, go_on = store.shared.take_jobs, trio.Event(), trio.Event()

    async def take_late(refs: Sequence[str], most: int, seconds: float) -> Recovered | None:
        found = await take(refs, most, seconds)
        if found is not None:
            taken.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(store.shared, "take_jobs", take_late)
    async with runtime:
        await taken.wait()
        yield runtime
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(runtime.shutdown, drain=30))
                await trio.testing.wait_all_tasks_blocked()
                assert runtime.ready() == "shutting down"
                go_on.set()


async def test_a_job_is_taken_by_a_node_that_is_about_to_end(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """A durable job that a node takes as it begins to drain is left again, and holds up nothing."""
    async with waiting_job(database) as (client, job_id):
        async with taking(monkeypatch, database):
            pass
        await goes_on_at("d", database, client, job_id)


async def test_a_cancelled_job_is_taken_by_a_node_that_is_about_to_end(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """A durable job that is to end as a node takes it ends there, although the node drains."""
    async with waiting_job(database) as (client, job_id):
        async with taking(monkeypatch, database):
            await client.send("job.cancel", {"job_id": job_id})
            while not await commands(database):  # noqa: ASYNC110
                await trio.sleep(0.05)
        end = await client.until_terminal(job_id)
        assert end["payload"]["code"] == "CANCELLED"


async def commands(database: str) -> int:
    """Return how many commands there are."""

    def count() -> int:
        with psycopg.connect(database) as db:
            found = db.execute("SELECT count(*) FROM arcp.command").fetchone()
        assert found is not None
        number: int = found[0]
        return number

    return await trio.to_thread.run_sync(count)
