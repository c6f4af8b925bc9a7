"""Runtimes over the stores of runtimes that were killed, and peers of theirs."""

from __future__ import annotations

from typing import Any

from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import Peer
from tests.durability.stores import crash
from tests.durability.story import FEATURES, World


def successor(world: World, **limits: Any) -> World:
    """Return a runtime over what this one would leave if it were killed now."""
    return World(crash(world.store), recorder=world.recorder, clock=world.clock, **limits)


async def welcomed(world: World) -> Peer:
    """Return a peer with a new session."""
    peer = world.connect()
    await peer.hello(features=FEATURES)
    return peer


async def resumed(world: World, resume: Frame, **hello: str) -> Peer:
    """A peer that goes on with a session.

    Raises:
        ArcpError: it may not.
    """
    peer = world.connect()
    await peer.hello(features=FEATURES, resume=resume, **hello)
    return peer


async def lost_job(world: World) -> tuple[Peer, str]:
    """Return a peer whose job has emitted an event and runs on, and the job's id."""
    peer = await welcomed(world)
    job_id: str = (await peer.submit("waiter"))["job_id"]
    await peer.expect("job.event")
    return peer, job_id
