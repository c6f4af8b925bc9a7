"""Work that only one can do at a time is done principal by principal."""

from __future__ import annotations

import time
from functools import partial

import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.rounds import Rounds


class Counter:
    """Something that serves a few at a time, a second each, and notes whom."""

    def __init__(self, places: int = 1) -> None:
        self.served: list[str] = []
        self._rounds = Rounds(places=places)

    async def ask(self, principal: str, *, urgent: bool = False) -> None:
        """Be served."""
        async with self._rounds.turn(principal, urgent=urgent):
            await trio.sleep(1)
            self.served.append(principal.upper() if urgent else principal)

    async def serve(self, asked: str) -> str:
        """Have these served, who all ask while the counter is busy; large letters are urgent."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.ask, "-")
            for each in asked:
                await wait_all_tasks_blocked()
                nursery.start_soon(partial(self.ask, each.lower(), urgent=each.isupper()))
            await wait_all_tasks_blocked()
        return "".join(self.served)


async def test_principals_are_served_one_after_the_other(autojump_clock: MockClock) -> None:
    """However many wait of one principal, another one's first is served next but one."""
    assert await Counter().serve("aaaaabbc") == "-abcabaaa"


async def test_urgent_work_has_every_other_turn(autojump_clock: MockClock) -> None:
    """Urgent work waits for one other piece, and does not keep the others from their turns."""
    assert await Counter().serve("aaaaaBBBC") == "-BaCaBaBaa"


async def test_who_waits_no_longer_is_passed_over(autojump_clock: MockClock) -> None:
    """A task that is cancelled while it waits, or as it is served, holds up nobody."""
    counter = Counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(counter.ask, "-")
        await wait_all_tasks_blocked()
        with trio.move_on_after(0.5):
            await counter.ask("b")
        with trio.move_on_after(1):
            await counter.ask("c")
        await counter.ask("a")
    await counter.ask("d")
    assert counter.served == ["-", "a", "d"]


@given(asked=st.text("abcABC", max_size=30), gone=st.lists(st.integers(0, 30), max_size=5))
def test_everybody_is_served(asked: str, gone: list[int]) -> None:
    """All are served, one at a time, but those that have been cancelled."""

    async def main() -> None:
        counter = Counter()
        scopes = [trio.CancelScope() for _ in asked]

        async def ask(principal: str, scope: trio.CancelScope) -> None:
            with scope:
                await counter.ask(principal.lower(), urgent=principal.isupper())

        async with trio.open_nursery() as nursery:
            for principal, scope in zip(asked, scopes, strict=True):
                nursery.start_soon(ask, principal, scope)
            for number in gone:
                await trio.sleep(0.5)
                for scope in scopes[number : number + 1]:
                    scope.cancel()
        done = [p for p, scope in zip(asked, scopes, strict=True) if not scope.cancelled_caught]
        assert sorted(counter.served) == sorted(done)
        before = trio.current_time()
        await counter.ask("z")
        assert trio.current_time() == before + 1

    trio.run(main, clock=MockClock(autojump_threshold=0))


async def test_what_holds_the_loop_lets_others_have_as_long(autojump_clock: MockClock) -> None:
    """Between two turns goes as much time as the work of the first one has held the loop."""
    rounds, begun = Rounds(rests=True), list[float]()

    async def hold(seconds: float) -> None:
        async with rounds.turn("alice", held=seconds):
            begun.append(trio.current_time())

    for seconds in (5, 3, 0):
        await hold(seconds)
    first, second, third = begun
    assert second - first >= 5
    assert third - second >= 3


async def test_a_rest_is_as_long_as_the_work(autojump_clock: MockClock) -> None:
    """Work that holds the loop in its turn is measured."""
    rounds, work_seconds = Rounds(rests=True), 0.02
    async with rounds.turn("alice"):
        end = time.thread_time() + work_seconds
        while time.thread_time() < end:
            pass
        ended = trio.current_time()
    assert trio.current_time() - ended >= work_seconds


async def test_a_principal_has_one_of_several_places(autojump_clock: MockClock) -> None:
    """Where several can be served at a time, others have the places that one asks for."""
    counter = Counter(places=2)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for each in "aaaab":
            nursery.start_soon(counter.ask, each)
            await wait_all_tasks_blocked()
        with trio.move_on_after(0.5):
            await counter.ask("a")
        nursery.start_soon(counter.ask, "c")
    assert (sorted(counter.served[:2]), counter.served[-2:]) == (["a", "b"], ["a", "a"])
    assert trio.current_time() - began == 4
