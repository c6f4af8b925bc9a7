"""A server that stops answering right after it has let a connection in holds nobody up."""

from __future__ import annotations

import threading

import pytest
import trio

from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.errors import StoreError
from arcp_trio.store.nodes import RollCall
from arcp_trio.store.postgres import _beats
from arcp_trio.store.postgres._address import address_of
from arcp_trio.store.postgres._beats import BeatThread
from arcp_trio.store.postgres._connections import DatabaseThread, Membership
from tests.cluster.line import DatabaseLine, Flow, Trap

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SECONDS = 30
FIRST_WORDS = b"SET search_path"


@pytest.mark.parametrize(("delay", "seconds"), [(0, 2), (0.3, 0.5)])
async def test_a_call_whose_connection_falls_silent(
    database: str, delay: float, seconds: float
) -> None:
    """The call fails within its time, even if it is over before the connection is made."""
    line = DatabaseLine(database)
    line.delay = delay
    with trio.fail_after(SECONDS):
        async with tasks_beside() as nursery:
            await nursery.start(line.run)
            line.trap = Trap(FIRST_WORDS, 1, Flow.swallow)
            thread = DatabaseThread(
                Membership(address_of(line.url, "arcp"), synchronous=True), "test"
            )
            with thread:
                with pytest.raises(StoreError, match="no answer within"):
                    await thread.run(lambda db: db.execute("SELECT 1"), seconds=seconds)
                line.trap, line.delay = None, 0
                await thread.run(lambda db: db.execute("SELECT 1"))


async def test_a_beat_whose_connection_falls_silent(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beat counts as failed, and a later one has another connection."""
    monkeypatch.setattr(
        _beats, "beat", lambda *_, **__: RollCall(began=0, ended=0, nodes=(), ahead=0)
    )
    line, seen = DatabaseLine(database), list[bool]()
    with trio.fail_after(SECONDS):
        async with tasks_beside() as nursery:
            await nursery.start(line.run)
            line.trap = Trap(FIRST_WORDS, 1, Flow.swallow)
            beaten = trio.Event()

            def see(call: RollCall | None) -> None:
                seen.append(call is not None)
                if seen[-1]:
                    beaten.set()

            membership = Membership(address_of(line.url, "arcp"), synchronous=True)
            nursery.start_soon(BeatThread(membership, 0.5, see, lambda: None).run)
            await beaten.wait()
    assert seen[0] is False


async def test_a_beat_for_which_there_is_no_thread(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beat counts as failed if the system has no thread for it just then; the next one comes."""
    monkeypatch.setattr(
        _beats, "beat", lambda *_, **__: RollCall(began=0, ended=0, nodes=(), ahead=0)
    )
    start, seen, beaten = threading.Timer.start, list[bool](), trio.Event()

    def start_late(timer: threading.Timer) -> None:
        if not seen:
            raise RuntimeError("can't start new thread")
        start(timer)

    def see(call: RollCall | None) -> None:
        seen.append(call is not None)
        if seen[-1]:
            beaten.set()

    monkeypatch.setattr(threading.Timer, "start", start_late)
    membership = Membership(address_of(database, "public"), synchronous=True)
    with trio.fail_after(SECONDS):
        async with tasks_beside() as nursery:
            nursery.start_soon(BeatThread(membership, 0.5, see, lambda: None).run)
            await beaten.wait()
    assert seen[0] is False
