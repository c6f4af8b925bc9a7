"""Sessions that are a node's in the database, and awake nowhere: they are parked before long."""

from __future__ import annotations

import pytest
import trio

from arcp_trio import InternalError
from arcp_trio.runtime.cluster import moving
from arcp_trio.runtime.cluster.moving import SharedParking
from arcp_trio.runtime.cluster.obeying import Obeyer
from arcp_trio.store.errors import StoreError
from arcp_trio.store.postgres.sharing import PostgresShared
from arcp_trio.store.shared import SessionPlace
from arcp_trio.transport import TransportClosed
from tests.cluster.counting import counted, counting_nodes, read

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]


async def nothing(_obeyer: Obeyer) -> None:
    """Obey nobody."""


def have_rows_locked(patch: pytest.MonkeyPatch) -> None:
    """Have thefts wait for locks, as if the nodes stood still within groups."""
    take = SharedParking._take

    async def take_late(parking: SharedParking, session_id: str, place: SessionPlace) -> bool:
        if place.node is None:
            return await take(parking, session_id, place)
        return await parking._moves.take_when_unlocked(session_id, place.node, place.moves)

    patch.setattr(SharedParking, "_take", take_late)


async def test_a_theft_that_succeeds_after_it_was_given_up(
    monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    """The session is parked again and goes on at a third node; what is awake stays awake."""
    may_take, take = trio.Event(), PostgresShared.take_when_unlocked
    monkeypatch.setattr(Obeyer, "obey_all", nothing)
    monkeypatch.setattr(moving, "STRAYS_SECONDS", 0.1)
    have_rows_locked(monkeypatch)
    async with (
        counting_nodes(database, 3) as (here, there, third),
        trio.open_nursery() as nursery,
    ):

        async def late(
            shared: PostgresShared, session_id: str, node: int | None, moves: int
        ) -> bool:
            """Lose the connection before the answer, while the database goes on."""

            async def go_on() -> None:
                await may_take.wait()
                assert await take(shared, session_id, node, moves)

            nursery.start_soon(go_on)
            raise StoreError("the connection is lost")

        monkeypatch.setattr(PostgresShared, "take_when_unlocked", late)
        awake = await there.welcomed()
        peer = await here.welcomed()
        job = (await peer.submit("count", [30, 0.01]))["job_id"]
        seen = await read(peer, job)
        with pytest.raises((InternalError, TransportClosed)):
            await there.welcomed(resume=peer.resume_from())
        session_id = peer.resume_from()["session_id"]
        while (place := await there.store.shared.place(session_id)) is not None and place.node:
            may_take.set()
            await trio.sleep(0.01)
        again = await third.welcomed(resume=peer.resume_from())
        job = (await again.submit("count", [30, 0.01]))["job_id"]
        assert counted(seen, seen[-1]["job_id"]) == counted(await read(again, job), job)
        place = await there.store.shared.place(awake.resume_from()["session_id"])
        assert place is not None
        assert (place.node, place.moves) == (there.store.shared.node, 0)
