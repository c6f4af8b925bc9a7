"""The time of day is the database's, whatever the clocks of the nodes say."""

from __future__ import annotations

import time

import psycopg
import pytest
import trio

from arcp_trio import Limits
from arcp_trio.nurseries import tasks_beside
from arcp_trio.runtime import clock
from arcp_trio.runtime.clock import STEP_SECONDS, StoreClock
from arcp_trio.store.errors import StoreError
from arcp_trio.store.postgres import _checks
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.wire.timestamps import parse_rfc3339
from tests.cluster.line import DatabaseLine, Flow, Trap
from tests.cluster.side_by_side import clients_of, runtime_over
from tests.metrics import scrape

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

NEAR = 0.3
"""Seconds; the answer of a busy server tells its time less exactly."""
QUICK = Limits(node_seconds=1)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MachineClock:
    """The clock of the machine that the nodes run on."""
    machine = MachineClock()
    for module in (clock, _checks):
        monkeypatch.setattr(module, "time", machine)
    return machine


class MachineClock:
    """A clock that is off by some seconds."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        """Return the seconds since 1970."""
        return time.time() + self.ahead

    def monotonic(self) -> float:
        """Return seconds that nobody can set."""
        return time.monotonic()


async def test_times_are_the_databases(database: str, machine: MachineClock) -> None:
    """A job is accepted at the time of the database, and not at that of its node."""
    machine.ahead = 0.5
    await trio.to_thread.run_sync(make_schema, database, None)
    runtime, store = runtime_over(database, "a", limits=QUICK)
    with trio.fail_after(60):
        async with runtime, clients_of(runtime, store) as node:
            # The first answers may have been slow: then it takes some beats.
            while abs(runtime.clock.now() - await now_of(database)) > NEAR / 2:  # noqa: ASYNC110
                await trio.sleep(0.05)
            client = await node.welcomed()
            before = await now_of(database)
            accepted = await client.submit("echo", {})
            after = await now_of(database)
            offset = pytest.approx(-0.5, abs=NEAR)
            while scrape(runtime)("clock_offset_seconds") != offset:  # noqa: ASYNC110
                await trio.sleep(0.05)
    at = parse_rfc3339(accepted["accepted_at"])
    assert before - NEAR <= at <= after + NEAR


async def test_a_machine_with_a_wrong_clock_joins_nobody(
    database: str, machine: MachineClock
) -> None:
    """The refusal says how far the clock is off, about: the server's answer may be slow."""
    machine.ahead = 3650
    await trio.to_thread.run_sync(make_schema, database, None)
    runtime, _ = runtime_over(database, "a", limits=QUICK)
    with pytest.raises(StoreError, match=r"is 36\d\d\.\d s ahead of that of the database"):
        await runtime.__aenter__()


async def test_a_slow_answer_makes_no_clock_wrong(database: str) -> None:
    """A node joins although the first answer about the time comes late."""
    await trio.to_thread.run_sync(make_schema, database, None)
    line = DatabaseLine(database)

    async def hold_up(_flow: Flow) -> None:
        await trio.sleep(4)

    late = line.trap = Trap(b"clock_timestamp", 1, hold_up)
    with trio.fail_after(60):
        async with tasks_beside() as nursery:
            await nursery.start(line.run)
            runtime, _ = runtime_over(line.url, "a", limits=QUICK)
            async with runtime:
                assert late.sprung.is_set()
                while runtime.ready() is not None:  # noqa: ASYNC110 - a beat tells nobody
                    await trio.sleep(0.05)
                assert abs(scrape(runtime)("clock_offset_seconds")) < 1


async def test_a_clock_that_is_set_wrong_makes_a_node_unready(
    database: str, machine: MachineClock
) -> None:
    """The node goes on, and gets no new clients until its clock is right again."""
    await trio.to_thread.run_sync(make_schema, database, None)
    runtime, _ = runtime_over(database, "a", limits=QUICK)
    with trio.fail_after(60):
        async with runtime:
            machine.ahead = -5
            while "clock" not in (runtime.ready() or ""):  # noqa: ASYNC110
                await trio.sleep(0.05)
            machine.ahead = 0
            while runtime.ready() is not None:  # noqa: ASYNC110
                await trio.sleep(0.05)


def test_a_correction_is_made_in_steps() -> None:
    """Only the first one is made at once: times of one node do not jump."""
    store_clock = StoreClock()
    store_clock.correct(0.8)
    assert store_clock.now() - time.time() == pytest.approx(0.8, abs=NEAR)
    store_clock.correct(-0.8)
    assert store_clock.now() - time.time() == pytest.approx(0.8 - STEP_SECONDS, abs=NEAR)


async def now_of(database: str) -> float:
    """Return the time of day of the database."""

    def ask() -> float:
        with psycopg.connect(database) as db:
            row = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        assert row is not None
        now: float = row[0]
        return now

    return await trio.to_thread.run_sync(ask)
