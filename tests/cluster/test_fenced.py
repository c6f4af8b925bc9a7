"""A node that others have taken for dead ends within five seconds, and says nothing of its jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio

from arcp_trio import (
    Agents,
    AsyncioContext,
    BlockingContext,
    Fenced,
    InternalError,
    JobContext,
    Json,
    Provisioner,
)
from arcp_trio.runtime.cluster.revealing import Revealer
from arcp_trio.store.looking import _PiecewiseReplay
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.postgres.reader import PostgresReader
from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import TransportClosed
from tests.cluster.finding_out import find_out_at
from tests.cluster.leaving import QUICK, other_known
from tests.cluster.leaving import agents as leaving
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over
from tests.credentials.runtimes import LEASE
from tests.credentials.upstream import Upstream

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 20.0
"""Four times what is promised: the machine may be busy. A thread goes on for a minute."""
STUBBORN = ("thread", "sayer", "slow")
GONE = "node is gone, others go on|store in trouble"
"""The second may come before the first, as the node's connections are cut."""


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
    assert set(codes) <= {1011, 1012}
    assert 1012 in codes


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


@asynccontextmanager
async def finds_out_at(
    database: str,
    patch: pytest.MonkeyPatch,
    kind: type,
    read: str,
    provisioner: Provisioner | None = None,
) -> AsyncGenerator[tuple[NodeHere, Callable[[], None]]]:
    """Run a node that finds out by a read that it is gone, once the function has been called."""
    await trio.to_thread.run_sync(make_schema, database, None)
    runtime, store = runtime_over(database, "n0", leaving, provisioner=provisioner)
    entered = trio.Event()

    async def live() -> None:
        async with runtime:
            entered.set()
            await trio.sleep_forever()

    async def see_its_end() -> None:
        with pytest.raises(Fenced):
            await live()

    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(see_its_end)
            await entered.wait()
            async with clients_of(runtime, store) as node:
                yield node, lambda: find_out_at(patch, store, kind, read)


async def told(client: Peer) -> tuple[list[str], int | None]:
    """Return the types of the frames that a client is sent until the close, and its code."""
    heard = list[str]()
    while True:
        try:
            heard.append((await client.receive())["type"])
        except TransportClosed as closed:
            return heard, closed.code


@pytest.mark.logs_error(GONE)
async def test_a_submit_that_comes_again_finds_out(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submit is not refused: the client submits again at the next node."""
    async with finds_out_at(database, monkeypatch, PostgresReader, "key") as (node, begin):
        client = await node.welcomed()
        begin()
        await client.send("job.submit", {"agent": "sleeper", "idempotency_key": "k"})
        assert await told(client) == ([], 1012)


@pytest.mark.logs_error(GONE)
async def test_a_session_that_catches_up_finds_out(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session does not fail: it goes on at the next node."""
    async with finds_out_at(database, monkeypatch, PostgresReader, "owed") as (node, begin):
        owner, client = await node.welcomed(), await node.welcomed()
        job_id = (await owner.submit("steps", 0))["job_id"]
        await owner.until_terminal(job_id)
        begin()
        await client.send("job.subscribe", {"job_id": job_id, "history": True})
        assert await told(client) == (["job.subscribed"], 1012)


@pytest.mark.logs_error(GONE)
async def test_a_replay_finds_out(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has its session back, and resumes it again at the next node."""
    async with finds_out_at(database, monkeypatch, _PiecewiseReplay, "next") as (node, begin):
        client = await node.welcomed()
        await client.until_terminal((await client.submit("steps", 0))["job_id"])
        await client.drop()
        begin()
        again = await node.welcomed(resume={**client.resume_from(), "last_event_seq": 0})
        assert await told(again) == ([], 1012)


@pytest.mark.logs_error(GONE)
async def test_a_look_for_credentials_finds_out(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client is sent nothing without their values: the next node asks for these, too."""
    upstream, read = Upstream(), (Revealer, "_node_of")
    async with finds_out_at(database, monkeypatch, *read, upstream) as (node, begin):
        runtime, store = runtime_over(database, "n1", leaving, provisioner=upstream)
        async with runtime, clients_of(runtime, store) as other:
            client = await other.welcomed()
            for _ in range(3):  # they are asked for at once
                await client.submit("sleeper", lease_request=LEASE)
            begin()
            again = await node.welcomed(resume={**client.resume_from(), "last_event_seq": 0})
            assert await told(again) == ([], 1012)


@pytest.mark.logs_error(GONE)
@pytest.mark.parametrize("agent", ["on-trio", "on-asyncio"])
async def test_an_agent_that_reads_finds_out(
    database: str, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    """It is not told, and cancelled at the end: another node goes on with its job."""
    raised = list[BaseException]()

    async def look_back(job: JobContext | AsyncioContext) -> Json:
        try:
            return await job.kept(job.id)
        except BaseException as error:
            raised.append(error)
            raise

    async with finds_out_at(database, monkeypatch, PostgresReader, "owner") as (node, begin):
        node.runtime.agent("on-trio")(look_back)
        node.runtime.agent("on-asyncio", loop="asyncio")(look_back)
        client = await node.welcomed()
        begin()
        await client.submit(agent)
        assert await told(client) == ([], 1012)
    assert not any(isinstance(error, Exception) for error in raised)


@pytest.mark.logs_error(GONE)
async def test_a_client_that_comes_to_it_is_told_to_try_again(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that wants a session of a node that is gone is told so, by an error to retry."""
    resume = {"resume_token": "none", "last_event_seq": 0}
    read = (PostgresReader, "session_of_token")
    async with finds_out_at(database, monkeypatch, *read) as (node, begin):
        begin()
        with pytest.raises(InternalError, match="another one goes on") as refused:
            await node.welcomed(resume=resume)
    assert refused.value.retryable


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
