"""A loop that an agent holds: it costs nobody a connection. Mostly in virtual time."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, Limits
from arcp_trio.lateness import HeldTime, Patience
from arcp_trio.testing import open_pair
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.timestamps import rfc3339
from tests.metrics import Metrics, parse, scrape
from tests.processes import stopped
from tests.sessions.support import open_stage
from tests.stage import make_runtime


async def test_the_runtime_does_not_count_it_as_silence(autojump_clock: MockClock) -> None:
    """A client that answers pings stays connected although the loop was held for long."""
    async with open_stage(heartbeat_seconds=5) as stage:

        @stage.runtime.agent("holder")
        async def holder(_job: JobContext) -> None:
            autojump_clock.jump(40)

        peer = await stage.welcomed()
        for _ in range(3):
            job = await peer.submit("holder")
            await peer.until_terminal(job["job_id"])
        assert scrape(stage.runtime)("connection_failures_total", reason="heartbeat_lost") == 0


async def test_nor_does_the_client(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A program that holds its own loop does not blame the runtime, and keeps its connection."""
    caplog.set_level(logging.DEBUG)
    async with make_runtime(limits=Limits(heartbeat_seconds=5)) as runtime:

        @runtime.agent("holder")
        async def holder(_job: JobContext) -> None:
            autojump_clock.jump(40)

        async with open_pair(runtime, token=TEST_TOKEN) as client:
            for _ in range(3):
                await (await client.submit("holder")).result()
    opened = [record.message for record in caplog.records if record.message.startswith("session")]
    assert opened.count("session opened") == 1
    assert "session resumed" not in opened


async def test_a_peer_that_stays_silent_is_lost_all_the_same(autojump_clock: MockClock) -> None:
    """After the loop was held, a peer has one interval to be heard."""
    async with open_stage(heartbeat_seconds=5) as stage:

        @stage.runtime.agent("holder")
        async def holder(_job: JobContext) -> None:
            autojump_clock.jump(40)

        peer = await stage.welcomed(answer_pings=False)
        await peer.submit("holder")
        await peer.expect("session.error", code="HEARTBEAT_LOST")


async def hold_always(clock: MockClock) -> None:
    """Hold the loop for half a second, again and again."""
    while True:
        await trio.sleep(0.01)
        clock.jump(0.5)


async def test_a_loop_that_is_always_late_does_not_hide_a_loss(autojump_clock: MockClock) -> None:
    """Silence is noticed although the loop is held for a moment at every interval."""
    async with open_stage(heartbeat_seconds=5) as stage, trio.open_nursery() as nursery:
        peer = await stage.welcomed(answer_pings=False)
        began = trio.current_time()
        nursery.start_soon(hold_always, autojump_clock)
        await peer.expect("session.error", code="HEARTBEAT_LOST")
        assert trio.current_time() - began < 60
        nursery.cancel_scope.cancel()


async def test_patience_ends(autojump_clock: MockClock) -> None:
    """Patience lasts two intervals; three if the loop was held, and as long as it was."""
    held = HeldTime()
    patience = Patience(held, 5)
    async with trio.open_nursery() as nursery:
        for begins, most in ((0, 10), (100, 20)):
            while (ends := patience.ends(begins)) > trio.current_time():
                await held.sleep_until(min(trio.current_time() + 5, ends))
            assert trio.current_time() - begins <= most
            await trio.sleep_until(100)
            nursery.start_soon(hold_always, autojump_clock)
        assert trio.current_time() >= 115
        nursery.cancel_scope.cancel()


async def test_a_lease_ends_although_the_loop_is_held(autojump_clock: MockClock) -> None:
    """An agent that blocks beyond the end of its lease, and then returns, does not succeed."""
    async with open_stage() as stage:

        @stage.runtime.agent("holder")
        async def holder(_job: JobContext) -> str:
            await trio.lowlevel.checkpoint()  # its acceptance is sent meanwhile
            autojump_clock.jump(100)
            return "done"

        peer = await stage.welcomed()
        ends = rfc3339(time.time() + 50)  # of day, at which the clock of the runtime begins
        job = await peer.submit("holder", lease_constraints={"expires_at": ends})
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["code"] == "LEASE_EXPIRED"


async def test_no_watchdog_is_no_loss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A runtime whose watchdog gets no thread says so, and goes on."""

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    async with open_stage() as stage:
        peer = await stage.welcomed()
        await peer.send("session.ping", {"nonce": "n"})
        await peer.expect("session.pong")
    assert "no watchdog" in [record.message for record in caplog.records]


async def test_code_that_keeps_pythons_lock_is_noticed() -> None:
    """The watchdog has few turns meanwhile, and knows all the same that the loop is held."""
    runtime = make_runtime()
    number = 1_000_000
    while seconds_of_a_sum(number) < 0.25:
        number *= 2

    @runtime.agent("adder")
    async def adder(_job: JobContext) -> None:
        for _ in range(4):
            sum(range(number))

    async with runtime, open_pair(runtime, token=TEST_TOKEN) as client:
        await (await client.submit("adder")).result()
        assert scrape(runtime)("loop_stalls_total") >= 1


def seconds_of_a_sum(number: int) -> float:
    """Return how long a sum takes, during which no other thread has a turn."""
    began = time.thread_time()
    sum(range(number))
    return time.thread_time() - began


STOPPED = """
import os, signal, time
import trio
from arcp_trio import Runtime, StaticTokens
from arcp_trio.runtime import watchdog
from arcp_trio.testing import open_pair

watchdog.LATE_SECONDS = 1
runtime = Runtime(auth=StaticTokens({"token": "alice"}))

@runtime.agent("stopped")
async def stopped(job):
    time.sleep(0.15)  # the watchdog asks meanwhile
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.15)

async def main():
    async with runtime, open_pair(runtime, token="token") as client:
        await (await client.submit("stopped")).result()
        print(runtime.exposition(), end="")

trio.run(main)
"""


async def test_a_process_that_stood_still_has_held_no_loop() -> None:
    """Time in which the whole process was stopped, in the middle of a step, is not the step's."""
    with trio.fail_after(60):
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", STOPPED], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        async with process.stdout as told:
            try:
                await stopped(process.pid)
                await trio.sleep(1.5)
                process.send_signal(signal.SIGCONT)
                text = b"".join([part async for part in told]).decode()
            finally:
                process.kill()
                with trio.CancelScope(shield=True):  # a killed process ends
                    await process.wait()
    assert Metrics(parse(text))("loop_stalls_total") == 0
