"""A session that was closed and is resumed after all: whose its jobs are, at one node or at two."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeAlias

import pytest
import trio

from arcp_trio import PermissionDenied
from arcp_trio.testing import Peer, open_peers
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.cluster.side_by_side import agents, nodes_over
from tests.stage import make_runtime

SECONDS = 60

Connect: TypeAlias = Callable[[], Awaitable[Peer]]


@asynccontextmanager
async def alone(_database: str) -> AsyncGenerator[tuple[Connect, Connect]]:
    """Run a runtime that shares its store with nobody, and that stands for both nodes."""
    runtime = make_runtime(agents)
    async with runtime, open_peers(runtime) as peers:
        yield peers.connect, peers.connect


@asynccontextmanager
async def two_nodes(database: str) -> AsyncGenerator[tuple[Connect, Connect]]:
    """Run two nodes."""
    async with nodes_over(database) as (here, there):
        yield here.connect, there.connect


async def welcomed(connect: Connect, resume: Frame | None = None) -> Peer:
    """Return a client with a session: a new one, or the one that `resume` names."""
    peer = await connect()
    await peer.hello(features=tuple(CLIENT_FEATURES), resume=resume)
    return peer


async def cancel(peer: Peer, job_id: str) -> None:
    """Cancel a job, and wait for the answer."""
    request = await peer.send("job.cancel", {"job_id": job_id})
    while True:
        frame = await peer.receive()
        if frame["type"] == "job.cancelled" and frame["job_id"] == job_id:
            return
        if frame["payload"].get("request_id") == request:
            assert frame["payload"]["code"] == "PERMISSION_DENIED"
            raise PermissionDenied(job_id)


@pytest.mark.postgres
@pytest.mark.real_tcp
@pytest.mark.parametrize("nodes", [alone, two_nodes])
async def test_a_closed_session_is_resumed(
    nodes: Callable[[str], AbstractAsyncContextManager[tuple[Connect, Connect]]], database: str
) -> None:
    """Jobs from before the close are any session's; those from after it are its own, everywhere."""
    with trio.fail_after(SECONDS):
        async with nodes(database) as (here, there):
            peer = await welcomed(here)
            before = (await peer.submit("sleeper"))["job_id"]
            keyed = (await peer.submit("sleeper", 1, idempotency_key="k"))["job_id"]
            await peer.send("session.close")
            await peer.expect("session.closed")
            again = await welcomed(there, peer.resume_from())
            after = (await again.submit("sleeper"))["job_id"]
            for connect in (here, there):
                other = await welcomed(connect)
                with pytest.raises(PermissionDenied):
                    await cancel(other, after)
            await cancel(await welcomed(here), before)
            await cancel(await welcomed(there), keyed)
            await cancel(again, after)


@pytest.mark.postgres
@pytest.mark.real_tcp
@pytest.mark.parametrize("nodes", [alone, two_nodes])
async def test_another_submitter_of_a_key_is_left(
    nodes: Callable[[str], AbstractAsyncContextManager[tuple[Connect, Connect]]], database: str
) -> None:
    """While a session that came with a job's key lives, the one that was closed has no say."""
    with trio.fail_after(SECONDS):
        async with nodes(database) as (here, there):
            peer, other = await welcomed(here), await welcomed(there)
            job_id = (await peer.submit("sleeper", 1, idempotency_key="k"))["job_id"]
            assert (await other.submit("sleeper", 1, idempotency_key="k"))["job_id"] == job_id
            await peer.send("session.close")
            await peer.expect("session.closed")
            again = await welcomed(there, peer.resume_from())
            with pytest.raises(PermissionDenied):
                await cancel(again, job_id)
            await cancel(other, job_id)


@pytest.mark.postgres
@pytest.mark.real_tcp
@pytest.mark.parametrize("nodes", [alone, two_nodes])
@pytest.mark.parametrize("place", [0, 1])
async def test_a_closed_session_submits_again(
    nodes: Callable[[str], AbstractAsyncContextManager[tuple[Connect, Connect]]],
    database: str,
    place: int,
) -> None:
    """Under the same key it gets its job, which is its own again, at whichever node it is."""
    with trio.fail_after(SECONDS):
        async with nodes(database) as both:
            peer = await welcomed(both[0])
            job_id = (await peer.submit("sleeper", 1, idempotency_key="k"))["job_id"]
            await peer.send("session.close")
            await peer.expect("session.closed")
            again = await welcomed(both[place], peer.resume_from())
            assert (await again.submit("sleeper", 1, idempotency_key="k"))["job_id"] == job_id
            for connect in both:
                other = await welcomed(connect)
                with pytest.raises(PermissionDenied):
                    await cancel(other, job_id)
            await cancel(again, job_id)
