"""The thread in which a store writes."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from arcp_trio.store.sqlite._work_thread import WorkThread


async def test_calls_are_made_in_order_in_one_thread() -> None:
    """What several tasks want to be called is called one after the other, in another thread."""
    made: list[tuple[int, str]] = []
    thread = WorkThread("work")

    async def ask(n: int) -> None:
        assert await thread.run(lambda: made.append((n, threading.current_thread().name))) is None

    with trio.fail_after(10), thread:
        assert await thread.run(lambda: 7) == 7
        async with trio.open_nursery() as nursery:
            for n in range(10):
                nursery.start_soon(ask, n)
    assert sorted(made) == [(n, "work") for n in range(10)]


async def test_an_error_is_raised_where_the_call_was_wanted() -> None:
    """A call that fails raises in the task that wanted it, and the thread goes on."""

    def fail() -> None:
        raise ValueError("as told")

    with trio.fail_after(10), (thread := WorkThread("work")):
        with pytest.raises(ValueError, match="as told"):
            await thread.run(fail)
        assert await thread.run(lambda: 7) == 7


async def test_a_cancel_waits_until_the_call_is_done() -> None:
    """A call that was begun is waited for; one that was not begun before the cancel is not made."""
    go_on, done = threading.Event(), list[str]()

    def act() -> None:
        assert go_on.wait(10)
        done.append("begun before")

    with trio.fail_after(20), (thread := WorkThread("work")):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(thread.run, act)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                go_on.set()
        assert done == ["begun before"]
        with trio.CancelScope() as scope:
            scope.cancel()
            await thread.run(lambda: done.append("after"))
        assert done == ["begun before"]


async def test_the_thread_ends_with_its_block() -> None:
    """No thread is left after the block, which may be entered again."""
    thread = WorkThread("work that ends")
    with trio.fail_after(10):
        for _ in range(2):
            with thread:
                await thread.run(int)
                assert "work that ends" in {each.name for each in threading.enumerate()}
            assert "work that ends" not in {each.name for each in threading.enumerate()}
