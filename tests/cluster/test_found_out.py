"""A node that finds out by a read that it is gone: it ends at once, and tells clients to go on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from arcp_trio import AsyncioContext, Fenced, InternalError, JobContext, Json, Provisioner
from arcp_trio.runtime.cluster.revealing import Revealer
from arcp_trio.store.looking import _PiecewiseReplay
from arcp_trio.store.postgres import PostgresStore
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.store.postgres.reader import PostgresReader
from arcp_trio.testing import Peer
from arcp_trio.transport import TransportClosed
from tests.cluster.leaving import agents as leaving
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over
from tests.credentials.runtimes import LEASE
from tests.credentials.upstream import Upstream

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.real_tcp,
    pytest.mark.logs_error("node is gone, others go on"),
]

SECONDS = 20.0


def find_out_at(patch: pytest.MonkeyPatch, store: PostgresStore, kind: type, read: str) -> None:
    """Have the next call of a method find out that the node is gone; nothing else tells the node.

    Args:
        patch: undoes it after the test.
        store: the node's.
        kind: the class of the method.
        read: the method, which reads something of this store.
    """
    real = getattr(kind, read)

    async def find_out(*_: object) -> None:
        with trio.CancelScope(shield=True):  # as a call of the database that is under way
            await trio.sleep(0.1)
        raise store._membership.fence()

    async def read_and_find_out(*args: object) -> object:
        for reader in store._readers:
            patch.setattr(reader, "run_timed", find_out)
        return await real(*args)

    patch.setattr(kind, read, read_and_find_out)


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


async def test_a_submit_that_comes_again_finds_out(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submit is not refused: the client submits again at the next node."""
    async with finds_out_at(database, monkeypatch, PostgresReader, "key") as (node, begin):
        client = await node.welcomed()
        begin()
        await client.send("job.submit", {"agent": "sleeper", "idempotency_key": "k"})
        assert await told(client) == ([], 1012)


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


async def test_a_replay_finds_out(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has its session back, and resumes it again at the next node."""
    async with finds_out_at(database, monkeypatch, _PiecewiseReplay, "next") as (node, begin):
        client = await node.welcomed()
        await client.until_terminal((await client.submit("steps", 0))["job_id"])
        await client.drop()
        begin()
        again = await node.welcomed(resume={**client.resume_from(), "last_event_seq": 0})
        assert await told(again) == ([], 1012)


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
