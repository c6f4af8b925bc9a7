"""The loop stands still for the thread that writes, but not for long."""

from __future__ import annotations

import threading

import pytest
import trio

from arcp_trio.store import call_thread
from arcp_trio.store.call_thread import CallThread
from arcp_trio.store.errors import StoreError

GUARD_SECONDS = 60.0
"""A wait that lasts so long shows a defect."""


@pytest.fixture
def passes(nursery: trio.Nursery) -> list[None]:
    """Return a list that gets an item with each pass of the loop."""
    counted: list[None] = []

    async def count() -> None:
        while True:
            counted.append(None)
            await trio.lowlevel.checkpoint()

    nursery.start_soon(count)
    return counted


async def test_loop_stands_still_until_let_go(
    passes: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else runs in the loop until the thread lets it go on; then everything does."""
    monkeypatch.setattr(call_thread, "STANDSTILL_SECONDS", GUARD_SECONDS)
    token = trio.lowlevel.current_trio_token()

    def act() -> int:
        before = len(passes)
        for _ in range(100):
            threading.Event().wait(0.0001)  # as a statement does, it gives Python's lock up
        during = len(passes) - before
        thread.let_loop_go_on()
        trio.from_thread.run_sync(passes.append, None, trio_token=token)
        return during

    with (thread := CallThread("calls")):
        assert await thread.run(act) == 0


async def test_loop_goes_on_by_itself() -> None:
    """A thread that takes long holds the loop up for a moment only."""
    goes_on = threading.Event()

    async def let_act_end() -> None:
        await trio.lowlevel.checkpoint()
        goes_on.set()

    with (thread := CallThread("calls")):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_act_end)
            assert await thread.run(lambda: goes_on.wait(GUARD_SECONDS))


async def test_calls_are_made_in_one_thread() -> None:
    """What several tasks want to be called is called one after the other, in the same thread."""
    made: list[str] = []

    with (thread := CallThread("calls")):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(thread.run, lambda: made.append(threading.current_thread().name))
    assert made == ["calls"] * 10


async def test_errors_and_cancels() -> None:
    """An error of the function is raised; a cancel waits until the function is done."""
    thread, done = CallThread("calls"), threading.Event()

    def fail() -> None:
        raise ValueError("no room")

    def cancelled_meanwhile() -> None:
        trio.from_thread.run_sync(scope.cancel, trio_token=token)
        done.set()

    token = trio.lowlevel.current_trio_token()
    with thread:
        with pytest.raises(ValueError, match="no room"):
            await thread.run(fail)
        with trio.CancelScope() as scope:
            scope.cancel()
            await thread.run(done.set)
        assert scope.cancelled_caught
        assert not done.is_set()
        with trio.CancelScope() as scope:
            await thread.run(cancelled_meanwhile)
        assert done.is_set()
        assert await thread.run(lambda: 7) == 7


async def test_the_thread_ends_with_its_block() -> None:
    """No thread is left after the block, which may be entered again."""
    name = "of this test alone"
    thread = CallThread(name)
    for _ in range(2):
        with thread:
            await thread.run(int)
            assert name in threads()
        assert name not in threads()


def threads() -> list[str]:
    """Return the names of all threads; those of other tests come and go."""
    return [thread.name for thread in threading.enumerate()]


async def test_a_call_after_the_end_is_refused() -> None:
    """A call that comes after the thread's end does not wait for it for ever."""
    with (thread := CallThread("calls")):
        await thread.run(int)
    with trio.fail_after(GUARD_SECONDS), pytest.raises(StoreError, match="not open"):
        await thread.run(int)
