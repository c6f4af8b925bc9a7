"""Clients with short-lived tokens, and a runtime that signs them."""

from __future__ import annotations

from arcp_trio import Policy, Runtime, Store
from arcp_trio.testing import Peer, PeerFactory, TrioClock
from arcp_trio.testing.frames import Frame
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.stage import TOKENS, simple_agents

KEY = b"k" * 32
POLICY = Policy(observers=frozenset({"auditor"}))


def make(store: Store | None = None, key: bytes | None = KEY) -> Runtime:
    """Return a runtime with the simple agents, and an auditor who observes everybody's jobs."""
    runtime = Runtime(auth=TOKENS, clock=TrioClock(), policy=POLICY, store=store, signing_key=key)
    runtime.add(simple_agents)
    return runtime


async def welcomed(peers: PeerFactory, **hello: object) -> Peer:
    """Return a client with a session, which knows this project's features."""
    peer = await peers.connect()
    await peer.hello(features=CLIENT_FEATURES, **hello)  # type: ignore[arg-type]
    return peer


async def listed(peer: Peer, **filters: object) -> list[str]:
    """Return the ids of the jobs that a client lists."""
    await peer.send("session.list_jobs", {"filter": filters})
    return [entry["job_id"] for entry in (await peer.expect("session.jobs"))["payload"]["jobs"]]


async def subscribed(peer: Peer, job_id: str) -> Frame:
    """Subscribe to a job, and return the answer."""
    request = await peer.send("job.subscribe", {"job_id": job_id, "history": True})
    return await peer.answer("job.subscribed", request)
