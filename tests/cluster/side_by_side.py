"""Several runtimes of one process over one database: nodes without the time that processes take."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import psycopg
import trio

from arcp_trio import (
    Agents,
    Authenticator,
    JobContext,
    Json,
    Limits,
    Policy,
    PostgresStore,
    Provisioner,
    Runtime,
)
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import Peer, PeerFactory, WireRecorder, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.questions.support import agents as questions
from tests.stage import TOKENS

LIMITS: Final = Limits(cancel_grace_seconds=1)

agents: Final = Agents()


@agents.agent("sleeper")
async def sleeper(_job: JobContext) -> Json:
    """Sleep until the job is ended from outside."""
    await trio.sleep_forever()


@agents.agent("pause")
async def pause(job: JobContext) -> Json:
    """Return after as many seconds as the input says."""
    await trio.sleep(job.input)


@agents.agent("spender")
async def spender(job: JobContext) -> Json:
    """Spend as many dollars as the input says, then sleep."""
    await job.metric("cost.model", job.input, unit="USD")
    await trio.sleep_forever()


class NodeHere:
    """One of the runtimes, and raw clients that connect to it."""

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: PostgresStore) -> None:
        self.runtime = runtime
        self.store = store
        self.connect = peers.connect
        self.recorder = peers.recorder
        self.runs = 0
        """How often its agent `echo` was called."""
        self.may_delegate = trio.Semaphore(0)
        """How many more children its agent `parent` may have."""

    async def echo(self, job: JobContext) -> Json:
        """Return the input."""
        self.runs += 1
        return job.input

    async def parent(self, job: JobContext) -> Json:
        """Have as many children as the input says, as soon as each may be, and wait for them."""
        children = []
        for number in range(job.input):
            await self.may_delegate.acquire()
            children.append(await job.delegate("echo", number))
        return [await child.result() for child in children]

    async def welcomed(self, token: str = TEST_TOKEN, *, resume: Frame | None = None) -> Peer:
        """Return a client with a session here: a new one, or the one that `resume` names."""
        peer = await self.connect()
        await peer.hello(token=token, features=tuple(CLIENT_FEATURES), resume=resume)
        return peer


def runtime_over(
    database: str,
    name: str,
    *others: Agents,
    limits: Limits = LIMITS,
    policy: Policy | None = None,
    provisioner: Provisioner | None = None,
    operators: Iterable[str] = ("operator",),
    auth: Authenticator = TOKENS,
) -> tuple[Runtime, PostgresStore]:
    """Return the runtime of a node, with these agents, too, and its store."""
    store = PostgresStore(database, node=name)
    runtime = Runtime(
        auth=auth,
        store=store,
        limits=limits,
        policy=policy,
        provisioner=provisioner,
        operators=operators,
    )
    for each in (agents, questions, *others):
        runtime.add(each)
    return runtime, store


@asynccontextmanager
async def clients_of(
    runtime: Runtime, store: PostgresStore, recorder: WireRecorder | None = None
) -> AsyncGenerator[NodeHere]:
    """Provide a node whose runtime is entered; what the clients hear is kept in `recorder`."""
    async with open_peers(runtime) as peers:
        peers.recorder = recorder or peers.recorder
        node = NodeHere(runtime, peers, store)
        runtime.agent("echo")(node.echo)
        runtime.agent("parent")(node.parent)
        yield node


@asynccontextmanager
async def nodes_over(
    database: str,
    count: int = 2,
    *,
    others: Iterable[Agents] = (),
    limits: Limits = LIMITS,
    policy: Policy | None = None,
    provisioner: Provisioner | None = None,
    operators: Iterable[str] = ("operator",),
) -> AsyncGenerator[list[NodeHere]]:
    """Run some nodes over an empty database; the first frame that is wrong fails the test."""
    await trio.to_thread.run_sync(make_schema, database, None)
    recorder, nodes = WireRecorder(), list[NodeHere]()
    async with AsyncExitStack() as stack:
        for place in range(count):
            runtime, store = runtime_over(
                database,
                f"n{place}",
                *others,
                limits=limits,
                policy=policy,
                provisioner=provisioner,
                operators=operators,
            )
            await stack.enter_async_context(runtime)
            nodes.append(await stack.enter_async_context(clients_of(runtime, store, recorder)))
        yield nodes


def give_job(database: str, job_id: str, node: int | None) -> None:
    """Have a node have a job in the database, or none."""
    with psycopg.connect(database) as db:
        db.execute("UPDATE arcp.job SET node = %s WHERE job_id = %s", (node, job_id))
