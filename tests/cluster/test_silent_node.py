"""A node whose beats do not arrive is adopted while it runs, and ends when it learns of that."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from arcp_trio import Agents, Fenced, JobContext, Limits, PostgresStore, Runtime
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import WireRecorder
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over
from tests.credentials.runtimes import LEASE
from tests.credentials.upstream import Upstream
from tests.metrics import scrape

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

QUICK = Limits(node_seconds=1, cancel_grace_seconds=1)
GONE = "node is gone, others go on|store in trouble"
"""The second may come before the first, as the node's connections are cut."""


napping = Agents()


@napping.agent("napper", durable=True)
async def napper(job: JobContext) -> None:
    """Say something, then sleep."""
    await job.log("begun")
    await job.sleep(600)


def silence(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the node of a store give no signs of life, as if that line alone were cut."""

    async def never(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(store.shared, "beat", never)


async def run_for_ever(runtime: Runtime, entered: trio.Event) -> None:
    """Run a node that nothing ends but the news that it is gone."""
    async with runtime:
        entered.set()
        await trio.sleep_forever()


@asynccontextmanager
async def until_fenced(
    runtime: Runtime, store: PostgresStore, recorder: WireRecorder
) -> AsyncGenerator[tuple[NodeHere, trio.Event]]:
    """Run a node; provide it, and an event that is set once it has learned that it is gone."""
    entered, over = trio.Event(), trio.Event()

    async def see_its_end() -> None:
        with pytest.raises(Fenced):
            await run_for_ever(runtime, entered)
        over.set()

    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(see_its_end)
            await entered.wait()
            async with clients_of(runtime, store, recorder) as node:
                yield node, over


@pytest.mark.logs_error(GONE)
async def test_its_job_ends_and_its_credential_is_revoked(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The adopter ends the job for all who watch it, and revokes what the job could spend."""
    await trio.to_thread.run_sync(make_schema, database, None)
    upstream, recorder = Upstream(), WireRecorder()
    silent, its_store = runtime_over(database, "n0", limits=QUICK, provisioner=upstream)
    other, store = runtime_over(database, "n1", limits=QUICK, provisioner=upstream)
    silence(its_store, monkeypatch)
    async with until_fenced(silent, its_store, recorder) as (node, over):
        client = await node.welcomed()
        job = await client.submit("sleeper", None, lease_request=LEASE)
        assert len(upstream.keys) == 1
        async with other, clients_of(other, store, recorder) as adopter:
            watcher = await adopter.welcomed()
            await watcher.send("job.subscribe", {"job_id": job["job_id"]})
            end = await watcher.until_terminal(job["job_id"])
            assert end["payload"]["message"] == (
                "the job's node was lost while the job was running"
            )
            assert end["payload"]["retryable"] is True
            while upstream.revoked.keys() != upstream.keys.keys():  # noqa: ASYNC110 - no event tells
                await trio.sleep(0.01)
            assert scrape(other)("adoptions_total") == 1
            await over.wait()


@pytest.mark.logs_error(GONE)
async def test_its_durable_job_goes_on(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients are told that the job goes on at another node: nothing was restarted there."""
    await trio.to_thread.run_sync(make_schema, database, None)
    recorder = WireRecorder()
    silent, its_store = runtime_over(database, "n0", napping, limits=QUICK)
    other, store = runtime_over(database, "n1", napping, limits=QUICK)
    silence(its_store, monkeypatch)
    async with until_fenced(silent, its_store, recorder) as (node, over):
        client = await node.welcomed()
        job_id = (await client.submit("napper"))["job_id"]
        await client.expect("job.event", job_id=job_id)
        async with other, clients_of(other, store, recorder) as adopter:
            watcher = await adopter.welcomed()
            await watcher.send("job.subscribe", {"job_id": job_id, "history": True})
            while (event := (await watcher.expect("job.event"))["payload"])["kind"] == "log":
                pass
            message = "the job goes on at another node"
            assert event["body"] == {"phase": "resumed", "message": message, "run": 2}
            await over.wait()
