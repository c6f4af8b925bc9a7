"""Wake-ups between nodes: they come, they are merged, and one that is lost hurts nobody."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import psycopg
import pytest
import trio

from arcp_trio.store.naps import Naps
from arcp_trio.store.postgres._address import address_of
from arcp_trio.store.postgres._connections import Membership
from arcp_trio.store.postgres._schema import migrate
from arcp_trio.store.postgres._wake_ups import WakeUps

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

SCHEMA = "arcp"
SECONDS = 60


@asynccontextmanager
async def woken(database: str, *nodes: int) -> AsyncGenerator[list[WakeUps]]:
    """Provide the wake-ups of these nodes, all of which listen."""
    address = address_of(database, SCHEMA)
    with psycopg.connect(database) as db:
        migrate(db, SCHEMA)
        for _ in nodes:
            db.execute("INSERT INTO arcp.node (name, version) VALUES (gen_random_uuid(), '1')")
    each: list[WakeUps] = []
    with trio.fail_after(SECONDS):
        async with trio.open_nursery() as nursery:
            for node in nodes:
                membership = Membership(address, synchronous=True, node=node)
                each.append(WakeUps(membership))
                nursery.start_soon(each[-1].run)
            for wake_ups in each:
                # A connection that is new may have missed anything.
                assert await wake_ups.moved() is None
                await wake_ups.asked()
            yield each
            nursery.cancel_scope.cancel()


async def moved(wake_ups: WakeUps, keys: set[int]) -> None:
    """Wait until all of these journals, and no others, have moved."""
    seen: set[int] = set()
    while seen != keys:
        found = await wake_ups.moved()
        assert found is not None
        seen |= found
        assert seen <= keys


async def test_a_node_is_woken_by_others_and_by_itself(database: str) -> None:
    """Each node learns which journals have moved, and whether it was asked something."""
    async with woken(database, 1, 2) as (one, two):
        one.moved_at({2: [17, 18], 1: [19]})
        await moved(two, {17, 18})
        await moved(one, {19})
        two.asked_at([1])
        await one.asked()


async def test_wake_ups_are_merged(database: str) -> None:
    """However often a journal moves, and however many do, no notification is too long."""
    async with woken(database, 1, 2) as (one, two):
        for _ in range(1_000):
            one.moved_at({2: [1, 2]})
        await moved(two, {1, 2})
        one.moved_at({2: range(10**12, 10**12 + 5_000)})
        one.asked_at([2])
        assert await two.moved() is None
        await two.asked()


async def test_a_listener_that_was_cut_off_looks_at_everything(database: str) -> None:
    """After a lost connection nobody can tell what has moved meanwhile."""
    async with woken(database, 1, 2) as (one, two):
        with psycopg.connect(database, autocommit=True) as db:
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        assert await two.moved() is None
        await two.asked()
        assert await one.moved() is None
        while True:  # the first one may meet the end of the connection that sends
            one.moved_at({2: [5]})
            with trio.move_on_after(1):
                await moved(two, {5})
                break


async def test_the_event_loop_does_not_nap_for_a_listener(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy loop sleeps for the calls that are under way; a listener that waits has no call."""
    async with woken(database, 1) as (one,):
        naps = 0

        def nap(_: Naps, timeout: float) -> None:
            nonlocal naps
            naps += timeout == 0

        monkeypatch.setattr(Naps, "before_io_wait", nap)
        passes = before = 0
        while passes < 100:  # the connection that sends may still be made
            await trio.lowlevel.checkpoint()
            passes, before = (passes + 1, before) if naps == before else (0, naps)
        with psycopg.connect(database, autocommit=True) as db:
            db.execute("SELECT pg_notify('arcp_1', '4')")
        await moved(one, {4})


async def test_words_that_nobody_sends_are_passed_over(database: str) -> None:
    """Any role of the database can notify: words that no node sends are passed over."""
    async with woken(database, 1) as (one,):
        with psycopg.connect(database, autocommit=True) as db:
            for payload in ("", "x -1 1.5 ²", "9" * 7_000, f"{10**18} 4"):
                db.execute("SELECT pg_notify('arcp_1', %s)", (payload,))
        await moved(one, {4, 10**18})
