"""A session resumes at whichever node it reaches, with nothing lost, doubled or reordered."""

from __future__ import annotations

import pytest
import trio

from arcp_trio import InternalError, ResumeWindowExpired, StaticTokens
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import TransportClosed
from tests.cluster.counting import counted, counting_nodes, read
from tests.cluster.side_by_side import NodeHere, clients_of, runtime_over
from tests.inside import awake_sessions
from tests.metrics import scrape
from tests.reading import close_code, refusal
from tests.stage import BOB

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]


def moved(node: NodeHere) -> dict[str, float]:
    """Return how many sessions have come to a node, by how."""
    figure = scrape(node.runtime)
    return {
        how: figure("sessions_moved_total", how=how) for how in ("claimed", "released", "stolen")
    }


async def parked(node: NodeHere, peer: Peer) -> None:
    """Wait until no node has a client's session."""
    shared = node.store.shared
    assert shared is not None
    while True:
        place = await shared.place(peer.resume_from()["session_id"])
        if place is None or place.node is None:
            return
        await trio.sleep(0.01)


@pytest.mark.parametrize("left", ["parked", "parking"])
async def test_a_session_that_was_left_at_another_node(left: str, database: str) -> None:
    """A dropped client goes on elsewhere, also if its session is just about to be parked."""
    async with counting_nodes(database) as (here, there):
        peer = await here.welcomed()
        job = (await peer.submit("count", [60, 0.005]))["job_id"]
        seen = await read(peer, job, 10)
        await peer.drop()
        if left == "parked":
            await parked(here, peer)
        again = await there.welcomed(resume=peer.resume_from())
        seen += await read(again, job)
        assert counted(seen, job) == list(range(60))
        assert not awake_sessions(here.runtime)
        if left == "parked":
            assert moved(there) == {"claimed": 1, "released": 0, "stolen": 0}


async def test_a_session_that_another_node_has_awake(database: str) -> None:
    """The other node lets go at once when asked, and closes the connection that it had."""
    async with counting_nodes(database, release_seconds=30) as (here, there):
        peer = await here.welcomed()
        job = (await peer.submit("count", [60, 0.005]))["job_id"]
        seen = await read(peer, job, 10)
        with trio.fail_after(10):
            again = await there.welcomed(resume=peer.resume_from())
        assert await close_code(peer) == 1000
        assert moved(there) == {"claimed": 0, "released": 1, "stolen": 0}
        seen += await read(again, job)
        assert counted(seen, job) == list(range(60))
        assert not awake_sessions(here.runtime)


async def test_each_node_asks_its_own_authenticator(database: str) -> None:
    """A resume elsewhere needs a token that is good there, and leaves the session alone if not."""
    async with counting_nodes(database, 1) as (here,):
        stranger, store = runtime_over(database, "n1", auth=StaticTokens({BOB: "bob"}))
        ally, its_store = runtime_over(database, "n2", auth=StaticTokens({"new": "alice"}))
        async with (
            stranger,
            ally,
            clients_of(stranger, store, here.recorder) as there,
            clients_of(ally, its_store, here.recorder) as elsewhere,
        ):
            peer = await here.welcomed()
            job = (await peer.submit("count", [60, 0.005]))["job_id"]
            for node in (there, elsewhere):
                alone = await node.connect()
                await alone.send("session.resume", peer.resume_from())
                assert (await refusal(alone))["code"] == "UNAUTHENTICATED"
            seen = await read(peer, job, 10)
            again = await elsewhere.welcomed("new", resume=peer.resume_from())
            seen += await read(again, job)
            assert counted(seen, job) == list(range(60))
            back = await here.connect()
            await back.send("session.resume", again.resume_from())
            assert (await refusal(back))["code"] == "UNAUTHENTICATED"


async def test_a_session_that_comes_back(database: str) -> None:
    """A client goes to and fro, with each token that it is given, whether or not it drops."""
    async with counting_nodes(database) as (here, there):
        peer = await here.welcomed()
        job = (await peer.submit("count", [200, 0.002]))["job_id"]
        seen: list[Frame] = []
        for n in range(8):
            seen += await read(peer, job, 3)
            if n % 3 == 0:
                await peer.drop()
            node = (there, here)[n % 2]
            peer = await node.welcomed(resume=peer.resume_from())
        seen += await read(peer, job)
        assert counted(seen, job) == list(range(200))


async def test_a_resume_that_is_refused_disturbs_nobody(database: str) -> None:
    """A wrong token, number or principal at another node leaves the session where it is."""
    async with counting_nodes(database) as (here, there):
        peer = await here.welcomed()
        job = (await peer.submit("count", [40, 0.05]))["job_id"]
        await read(peer, job, 1)
        good = peer.resume_from()
        for wrong in (
            good | {"resume_token": "rt_wrong"},
            good | {"last_event_seq": 1_000},
            good | {"last_event_seq": -1},
        ):
            with pytest.raises(ResumeWindowExpired):
                await there.welcomed(resume=wrong)
        with pytest.raises(ResumeWindowExpired):
            await there.welcomed(BOB, resume=good)
        await read(peer, job, 2)
        assert awake_sessions(here.runtime)
        assert not awake_sessions(there.runtime)
        assert counted(await read(peer, job), job)[-1] == 39


async def test_a_session_that_is_wanted_at_two_nodes_at_once(database: str) -> None:
    """Who keeps the session has it whole; a rival loses it, is to try again, or comes later."""
    async with counting_nodes(database, 3) as (first, second, third):
        peer = await first.welcomed()
        job = (await peer.submit("count", [300, 0.005]))["job_id"]
        seen = await read(peer, job, 5)
        resume, won = peer.resume_from(), list[list[Frame]]()

        async def attempt(node: NodeHere) -> None:
            try:
                frames = await read(await node.welcomed(resume=resume), job)
            except (TransportClosed, ResumeWindowExpired, InternalError):
                return
            won.append(frames)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(attempt, second)
            nursery.start_soon(attempt, third)
        assert won
        for frames in won:
            assert counted(seen + frames, job) == list(range(300))


async def test_a_window_that_is_over_is_over_at_every_node(database: str) -> None:
    """The window goes by the clock of the database, from when the session was parked."""
    async with counting_nodes(database, resume_window_seconds=1) as (here, there):
        peer = await here.welcomed()
        resume = peer.resume_from()
        await peer.drop()
        await parked(here, peer)
        await trio.sleep(1.1)
        for node in (there, here):
            with pytest.raises(ResumeWindowExpired):
                await node.welcomed(resume=resume)
