"""A node that others have taken for dead ends within five seconds, and says nothing of its jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio

from arcp_trio import (
    Agents,
    BlockingContext,
    Fenced,
    JobContext,
    Json,
)
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import TransportClosed
from tests.cluster.leaving import QUICK, other_known
from tests.cluster.leaving import agents as leaving
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 20.0
"""Four times what is promised: the machine may be busy. A thread goes on for a minute."""
STUBBORN = ("thread", "sayer", "slow")
GONE = "node is gone, others go on"


class Stubborn:
    """Agents that go on for as long as they can, whatever they are told."""

    def __init__(self) -> None:
        self.agents = Agents()
        self.let_go = threading.Event()
        for function in (self.thread, self.sayer, self.slow):
            self.agents.agent(function.__name__)(function)

    def thread(self, _job: BlockingContext) -> Json:
        """Do not stop."""
        self.let_go.wait(60)

    def sayer(self, job: BlockingContext) -> Json:
        """Say one thing after the other."""
        while True:
            job.log("still here")

    async def slow(self, job: JobContext) -> Json:
        """Clean up for longer than there is time."""
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
                await job.log("cleaned up")


async def busy(node: NodeHere) -> dict[Peer, list[str]]:
    """Have clients with their jobs: some that do not stop, one that does, no job at all."""
    clients = {await node.welcomed(): agents for agents in (STUBBORN, ("sleeper",), ())}
    return {
        client: [(await client.submit(agent))["job_id"] for agent in agents]
        for client, agents in clients.items()
    }


@pytest.mark.logs_error(GONE)
async def test_it_is_over_whatever_its_jobs_do(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clients are told to come back; its jobs are another node's, which ends each once."""
    caplog.set_level(logging.INFO)
    await trio.to_thread.run_sync(make_schema, database, None)
    stubborn, recorder = Stubborn(), WireRecorder()
    older, store = runtime_over(database, "n0", stubborn.agents)
    entered = trio.Event()
    over = trio.Event()
    codes = list[int | None]()

    async def be_older() -> None:
        async with older:
            entered.set()
            await trio.sleep_forever()

    async def see_older_end() -> None:
        with pytest.raises(Fenced):
            await be_older()
        over.set()

    async def hear(client: Peer) -> None:
        try:
            while True:
                await client.receive()
        except TransportClosed as closed:
            codes.append(closed.code)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(see_older_end)
            await entered.wait()
            async with clients_of(older, store, recorder) as node, trio.open_nursery() as hearing:
                clients = await busy(node)
                for client in clients:
                    hearing.start_soon(hear, client)
                newer, its_store = runtime_over(database, "n0")
                async with newer, clients_of(newer, its_store, recorder) as taker:
                    with trio.fail_after(SECONDS):
                        await over.wait()
                    stubborn.let_go.set()
                    for client, jobs in clients.items():
                        again = await taker.welcomed(resume=client.resume_from())
                        for job_id in jobs:
                            terminal = await again.until_terminal(job_id)
                            assert terminal["payload"]["code"] == "INTERNAL_ERROR"
    said = [record.getMessage() for record in caplog.records]
    assert "job left to another node" in said
    assert "job suspended" not in said
    assert set(codes) == {1012}


async def replaced(
    database: str, be_older: Callable[[], Awaitable[None]], ready: trio.Event
) -> None:
    """Run a node `n0`, and, once it is ready, a later one of that name, until the first is over."""
    over = trio.Event()

    async def see_older_end() -> None:
        with pytest.raises(Fenced):
            await be_older()
        over.set()

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(see_older_end)
            await ready.wait()
            newer, _ = runtime_over(database, "n0")
            async with newer:
                await over.wait()


@pytest.mark.logs_error(GONE)
async def test_a_client_is_told_nothing_but_the_close(database: str) -> None:
    """What a client asks of a node that is gone has no answer there: it asks the next node."""
    await trio.to_thread.run_sync(make_schema, database, None)
    recorder, asking = WireRecorder(), trio.Event()
    older, store = runtime_over(database, "n0")
    answers = list[Frame]()

    async def be_older() -> None:
        async with older, clients_of(older, store, recorder) as node:
            client = await node.welcomed()
            with suppress(TransportClosed):
                await ask(client)
            await trio.sleep_forever()

    async def ask(client: Peer) -> None:
        while True:
            await client.send("session.list_jobs", {})
            answers.append(await client.receive())
            asking.set()

    await replaced(database, be_older, asking)
    assert all(answer["type"] == "session.jobs" for answer in answers), answers[-1]


@pytest.mark.logs_error(GONE)
async def test_it_is_over_while_it_drains(database: str) -> None:
    """A node that drains, and is taken for dead meanwhile, ends as any other: by `Fenced` alone."""
    await trio.to_thread.run_sync(make_schema, database, None)
    recorder, draining, over = WireRecorder(), trio.Event(), trio.Event()
    older, its_store = runtime_over(database, "n0", leaving, limits=QUICK)

    async def drain() -> None:
        async with older, clients_of(older, its_store, recorder) as node:
            await other_known(node)
            client = await node.welcomed()
            await client.submit("sleeper")
            await client.submit("steps", 1_000)
            draining.set()
            await older.shutdown(drain=600)

    async def see_its_end() -> None:
        with pytest.raises(Fenced):
            await drain()
        over.set()

    other, store = runtime_over(database, "n1", leaving, limits=QUICK)
    with trio.fail_after(60):
        async with other, clients_of(other, store, recorder), trio.open_nursery() as nursery:
            nursery.start_soon(see_its_end)
            await draining.wait()
            await trio.sleep(2)
            newer, _ = runtime_over(database, "n0", leaving, limits=QUICK)
            async with newer:
                with trio.fail_after(SECONDS):
                    await over.wait()


@pytest.mark.logs_error("background work failed, and goes on(.|\n)*RuntimeError: a mistake")
async def test_another_error_is_not_hidden(
    database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that comes together with the news that the node is gone is logged, and it alone."""
    await trio.to_thread.run_sync(make_schema, database, None)
    runtime, store = runtime_over(database, "n0")

    async def fail() -> None:
        raise ExceptionGroup("two at once", [Fenced("gone"), RuntimeError("a mistake")])

    monkeypatch.setattr(store.shared, "held_elsewhere", fail)
    with trio.fail_after(SECONDS):
        async with runtime:
            while not any(record.exc_info for record in caplog.records):  # noqa: ASYNC110
                await trio.sleep(0.05)
    ((_, error, _),) = [record.exc_info for record in caplog.records if record.exc_info]
    assert pytest.RaisesGroup(RuntimeError).matches(error)


@pytest.mark.logs_error("node is gone, others go on")
@pytest.mark.logs_error("node failed(.|\n)*RuntimeError: a mistake")
async def test_another_error_at_the_end_is_not_hidden(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a node fails with besides is logged when it ends because it is gone."""
    await trio.to_thread.run_sync(make_schema, database, None)
    runtime, store = runtime_over(database, "n0")

    async def fail(*_: object) -> None:
        await trio.sleep(0.5)
        raise ExceptionGroup("two at once", [Fenced("gone"), RuntimeError("a mistake")])

    monkeypatch.setattr(store.shared, "beat", fail)
    with trio.fail_after(SECONDS), pytest.raises(Fenced, match="gone"):
        async with runtime:
            await trio.sleep_forever()


async def test_a_start_that_finds_its_node_gone(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is gone before it has started raises `Fenced`, however many parts notice it."""
    await trio.to_thread.run_sync(make_schema, database, None)
    runtime, store = runtime_over(database, "n0")

    async def fail(*_: object) -> None:
        with trio.CancelScope(shield=True):  # as a call of the database that is under way
            await trio.sleep(0.2)
        raise Fenced("gone")

    monkeypatch.setattr(store, "recover", fail)
    monkeypatch.setattr(store.shared, "beat", fail)
    with trio.fail_after(SECONDS), pytest.raises(Fenced, match="gone"):
        async with runtime:
            pass


@pytest.mark.logs_error(GONE)
async def test_a_node_that_is_gone_before_it_has_taken_over(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is gone when it reads what was left, after trouble, raises `Fenced` alone."""
    await trio.to_thread.run_sync(make_schema, database, None)
    runtime, store = runtime_over(database, "n0")
    started = trio.Event()

    async def return_at_once() -> None:
        await trio.lowlevel.checkpoint()

    async def fail(*_: object) -> None:
        await started.wait()
        raise Fenced("gone")

    async def live() -> None:
        async with runtime:
            started.set()
            await trio.sleep_forever()

    monkeypatch.setattr(store, "troubled", return_at_once)
    monkeypatch.setattr(store, "recover", fail)
    monkeypatch.setattr(store.shared, "beat", fail)
    with trio.fail_after(SECONDS), pytest.raises(Fenced, match="gone"):
        await live()
