"""Sessions whose node stands still: they are stolen, and what it writes afterwards is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import trio

from arcp_trio import InternalError, PostgresStore
from arcp_trio.runtime.cluster.obeying import Obeyer
from arcp_trio.runtime.session.sessions import Sessions
from arcp_trio.store.writes import AcceptJob, AppendLog, RotateToken, Write
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import TransportClosed
from tests.cluster.counting import SECONDS, counted, counting_nodes, read
from tests.cluster.side_by_side import NodeHere, nodes_over
from tests.credentials.upstream import Upstream
from tests.inside import awake_sessions, live_jobs
from tests.metrics import scrape
from tests.reading import close_code

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]


class Standstill:
    """Has one node stand still before it stores a group that a test picks."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun, self.over = trio.Event(), trio.Event()
        self._store: PostgresStore | None = None
        self._picked: Callable[[Write], bool] = bool
        commit = PostgresStore._commit

        async def standing_still(store: PostgresStore, writes: Sequence[Write]) -> frozenset[str]:
            if self._store is store and any(map(self._picked, writes)):
                self.begun.set()
                await self.over.wait()
            return await commit(store, writes)

        patch.setattr(PostgresStore, "_commit", standing_still)

    def before(self, store: PostgresStore, picked: Callable[[Write], bool]) -> None:
        """Stand still before the next group that has such a write."""
        self._store, self._picked = store, picked


@pytest.fixture
def standstill(monkeypatch: pytest.MonkeyPatch) -> Standstill:
    """What has a node stand still."""
    return Standstill(monkeypatch)


async def test_a_node_that_stands_still_between_acceptance_and_promise(
    standstill: Standstill, database: str
) -> None:
    """A job that was accepted is promised where the session resumes, with the request's id."""
    async with counting_nodes(database) as (here, there):
        peer = await here.welcomed()
        standstill.before(
            here.store, lambda write: isinstance(write, AppendLog) and bool(write.watched)
        )
        asked = {"agent": "count", "input": [30, 0.01], "idempotency_key": "k"}
        request = await peer.send("job.submit", asked)
        await standstill.begun.wait()
        again = await there.welcomed(resume=peer.resume_from())
        accepted = await again.answer("job.accepted", request)
        standstill.over.set()
        job = accepted["job_id"]
        assert counted(await read(again, job), job) == list(range(30))
        assert await close_code(peer) == 1000
        assert not [frame for frame in peer.seen if frame["type"] == "job.accepted"]


async def test_a_node_that_stands_still_with_numbers_that_are_not_stored(
    standstill: Standstill, database: str
) -> None:
    """Its numbers are never seen: the node that has stolen the session gives them anew."""
    async with counting_nodes(database) as (here, there):
        peer = await here.welcomed()
        job = (await peer.submit("count", [60, 0.01]))["job_id"]
        seen = await read(peer, job, 10)
        standstill.before(here.store, lambda write: isinstance(write, AppendLog))
        await standstill.begun.wait()
        again = await there.welcomed(resume=peer.resume_from())
        standstill.over.set()
        assert await close_code(peer) == 1000
        stale = counted(peer.seen, job)
        rest = await read(again, job)
        assert counted(seen, job) + counted(rest, job) == list(range(60))
        assert stale == list(range(10, 10 + len(stale)))
        assert scrape(there.runtime)("sessions_moved_total", how="stolen") == 1
        assert scrape(here.runtime)("refused_writes_total") >= 1
        assert not awake_sessions(here.runtime)


async def test_a_node_that_stands_still_between_taking_and_attaching(
    standstill: Standstill, database: str
) -> None:
    """A client that gives up on such a node resumes at a third one, with the token it has."""
    async with counting_nodes(database, 3) as (first, second, third):
        peer = await first.welcomed()
        job = (await peer.submit("count", [60, 0.01]))["job_id"]
        seen = await read(peer, job, 10)
        await peer.drop()
        standstill.before(second.store, lambda write: isinstance(write, RotateToken))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expect_no_session, second, peer.resume_from())
            await standstill.begun.wait()
            again = await third.welcomed(resume=peer.resume_from())
            standstill.over.set()
        seen += await read(again, job)
        assert counted(seen, job) == list(range(60))


async def expect_no_session(node: NodeHere, resume: Frame) -> None:
    """Try to resume at a node, in vain."""
    with pytest.raises((InternalError, TransportClosed)):
        await node.welcomed(resume=resume)


async def nothing(_obeyer: Obeyer) -> None:
    """Obey nobody."""


async def test_a_client_comes_back_to_a_node_that_did_not_notice(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """A node that still has a stolen session awake ends it there before it takes it again."""
    monkeypatch.setattr(Obeyer, "obey_all", nothing)
    async with counting_nodes(database) as (here, there):
        peer = await here.welcomed()
        away = await there.welcomed(resume=peer.resume_from())
        job = (await away.submit("count", [60, 0.01]))["job_id"]
        seen = await read(away, job, 10)
        assert awake_sessions(here.runtime)
        back = await here.welcomed(resume=away.resume_from())
        assert await close_code(peer) == 1000
        seen += await read(back, job)
        assert counted(seen, job) == list(range(60))


async def test_a_node_that_is_asked_too_late(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """A session that has left and come back in the meantime is not let go of once more."""
    begun, may_obey = trio.Event(), trio.Event()
    let_go = Sessions.let_go

    async def slowly(sessions: Sessions, session_id: str, moves: int) -> None:
        begun.set()
        await may_obey.wait()
        await let_go(sessions, session_id, moves)

    monkeypatch.setattr(Sessions, "let_go", slowly)
    async with counting_nodes(database) as (here, there):
        peer = await here.welcomed()
        away = await there.welcomed(resume=peer.resume_from())
        await begun.wait()
        back = await here.welcomed(resume=away.resume_from())
        may_obey.set()
        job = (await back.submit("count", [60, 0.01]))["job_id"]
        assert counted(await read(back, job), job) == list(range(60))


async def test_a_job_that_is_refused_keeps_no_credentials(
    standstill: Standstill, database: str
) -> None:
    """A submit whose session is stolen before its job is stored leads to none, here or there."""
    upstream = Upstream()
    with trio.fail_after(SECONDS):
        async with nodes_over(database, provisioner=upstream) as (here, there):
            peer = await here.welcomed()
            standstill.before(here.store, lambda write: isinstance(write, AcceptJob))
            asked = {"agent": "sleeper", "lease_request": {"model.use": ["*"]}}
            await peer.send("job.submit", asked)
            await standstill.begun.wait()
            assert len(upstream.live) == 1
            again = await there.welcomed(resume=peer.resume_from())
            standstill.over.set()
            while True:
                if not upstream.live and not live_jobs(here.runtime):
                    break
                await trio.sleep(0.01)
            listing = await again.answer("session.jobs", await again.send("session.list_jobs", {}))
            assert listing["jobs"] == []


async def test_a_submit_tells_a_node_that_its_session_was_stolen(database: str) -> None:
    """A node that learns of a theft by the refusal of a job under a key ends the session."""
    async with counting_nodes(database) as (here, there):
        peer = await here.welcomed()
        assert peer.session_id is not None
        place = await there.store.shared.place(peer.session_id)
        assert place is not None
        assert place.node is not None
        assert await there.store.shared.take_when_unlocked(peer.session_id, place.node, place.moves)
        asked = {"agent": "count", "input": [1, 0], "idempotency_key": "k"}
        await peer.send("job.submit", asked)
        assert await close_code(peer) == 1000
        again = await there.welcomed(resume=peer.resume_from())
        job = (await again.submit("count", [3, 0], idempotency_key="k"))["job_id"]
        assert counted(await read(again, job), job) == [0, 1, 2]
