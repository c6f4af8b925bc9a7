"""The bound on unread events, and what happens at it."""

from __future__ import annotations

import gc

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Client, Event, EventsNotKept, JobHandle, connect
from arcp_trio.client import unread
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted

MOST = 100

_before: dict[int, Event] = {}
"""Events that an earlier test has left, for example in its traceback, by identity."""


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "MAX_EVENTS", MOST)
    _before.clear()
    _before.update((id(event), event) for event in _in_memory())


def kept() -> int:
    """Return how many events of this test are in memory."""
    return sum(id(event) not in _before for event in _in_memory())


def _in_memory() -> list[Event]:
    gc.collect()
    return [thing for thing in gc.get_objects() if isinstance(thing, Event)]


class Fountain:
    """A script with two jobs, the first of which emits more events than the bound."""

    def __init__(self, events: int) -> None:
        self.events = events
        self.sent = 0

    async def __call__(self, wire: Wire) -> None:
        """Follow the script."""
        await wire.welcome()
        await wire.accept("job_1")
        await wire.accept("job_2")
        for number in range(1, self.events + 1):
            await wire.log(number, "job_1", "x" * 500)
            self.sent = number
        await wire.result(self.events + 1, "job_1", "first")
        await wire.result(self.events + 2, "job_2", "second")
        await wire.end()


async def test_what_is_not_read_is_left_to_the_runtime(autojump_clock: MockClock) -> None:
    """At the bound the client stops reading, and no event is lost if no call waits.

    A late iteration gets all events.
    """
    fountain = Fountain(2_000)
    async with scripted(fountain) as runtime, connect(runtime.open, token=TOKEN) as client:
        job, _ = await client.submit("echo"), await client.submit("echo")
        await wait_all_tasks_blocked()
        assert kept() <= MOST
        assert fountain.sent < 1_000
        seen = [event.seq async for event in job.events()]
        assert seen == list(range(1, 2_001))


async def test_what_is_not_kept_comes_again(autojump_clock: MockClock) -> None:
    """A result comes after more events than the bound; iterations have the runtime repeat them.

    One is slow and one is not, and a third is left half-way.
    """
    most = 0
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        job = await client.submit("count", 1_000)
        assert await job.result() == {"n": 1_000}
        assert kept() <= MOST + 1
        seen: list[list[str]] = [[], [], []]

        async def read(place: int, pause: float, count: int) -> None:
            nonlocal most
            async for event in job.events():
                seen[place].append(event.body["message"])
                if len(seen[place]) % 250 == 100:
                    most = max(most, kept())
                if len(seen[place]) == count:
                    break
                await trio.sleep(pause)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, 0, 0, -1)
            nursery.start_soon(read, 1, 0.002, -1)
            nursery.start_soon(read, 2, 0.001, 150)
        numbers = [str(number) for number in range(1_000)]
        assert seen == [numbers, numbers, numbers[:150]]
        assert most <= MOST + 1
        assert [event.body["message"] async for event in job.events()] == numbers


async def test_what_cannot_come_again(autojump_clock: MockClock) -> None:
    """Where the runtime sends no events again, iterating raises, and says what helps."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, features=["result_chunk"]) as client,
        connect(Network(runtime).open, token=TOKEN) as watcher,
    ):
        job = await client.submit("paced", 300)
        late = await watcher.subscribe(job.id)
        for handle, why in ((job, "not negotiated"), (late, "history=True")):
            assert await handle.result() == {"n": 300}
            with pytest.raises(EventsNotKept, match=f"{job.id}.*{why}"):
                await anext(handle.events())


async def test_another_job_is_not_held_up(autojump_clock: MockClock) -> None:
    """UnreadEvents events of one job do not delay the result of another."""
    async with scripted(Fountain(5_000)) as runtime, connect(runtime.open, token=TOKEN) as client:
        chatty, other = await client.submit("echo"), await client.submit("echo")
        assert await other.result() == "second"
        assert await chatty.result() == "first"


async def test_what_is_iterated_is_never_let_go(autojump_clock: MockClock) -> None:
    """An iteration that waits for a later frame of another job gets it, and loses no event."""
    async with scripted(Fountain(3_000)) as runtime, connect(runtime.open, token=TOKEN) as client:
        chatty, other = await client.submit("echo"), await client.submit("echo")
        seen = []
        async for event in chatty.events():
            seen.append(event.seq)
            if event.seq == 5:
                before = trio.current_time()
                assert await other.result() == "second"
                assert trio.current_time() - before < 2
        assert seen == list(range(1, 3_001))


async def test_a_handler_waits_for_what_is_behind_many_events(autojump_clock: MockClock) -> None:
    """A handler's call is answered, however many events come before the answer."""
    handled: list[int] = []

    submitted = trio.Event()
    jobs: list[JobHandle] = []

    async def on_event(event: Event) -> None:
        if not handled:
            await submitted.wait()
            assert await jobs[1].result() == "second"
        handled.append(event.seq)

    async with (
        scripted(Fountain(3_000)) as runtime,
        connect(runtime.open, token=TOKEN, on_event=on_event) as client,
    ):
        jobs += [await client.submit("echo"), await client.submit("echo")]
        submitted.set()
        assert await jobs[0].result() == "first"
    assert handled == list(range(1, 3_001))


async def test_with_a_handler_nothing_else_stands_in_the_way(autojump_clock: MockClock) -> None:
    """With an event handler, handles that are not iterated over delay no event."""
    handled: list[int] = []

    async def on_event(event: Event) -> None:
        handled.append(event.seq)

    async with (
        scripted(Fountain(1_000)) as runtime,
        connect(runtime.open, token=TOKEN, on_event=on_event) as client,
    ):
        jobs = [await client.submit("echo"), await client.submit("echo")]
        await trio.sleep(60)
        assert len(handled) == 1_000
        assert await jobs[0].result() == "first"


async def test_a_slow_handler_holds_the_network_up(autojump_clock: MockClock) -> None:
    """A slow handler stops the reading at the bound, also while a call waits for the result."""
    fountain = Fountain(1_500)
    most = 0
    handled: list[int] = []

    async def on_event(event: Event) -> None:
        nonlocal most
        await trio.sleep(0.001)
        handled.append(event.seq)
        if event.seq % 100 == 0:
            most = max(most, kept())

    async with (
        scripted(fountain) as runtime,
        connect(runtime.open, token=TOKEN, on_event=on_event) as client,
    ):
        job, _ = await client.submit("echo"), await client.submit("echo")
        assert await job.result() == "first"
    assert handled == list(range(1, 1_501))
    assert most <= MOST + 1


async def test_bytes_count_as_well(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few large events reach the bound as many small ones do."""
    monkeypatch.setattr(unread, "MAX_BYTES", 10_000)
    fountain = Fountain(2_000)
    async with scripted(fountain) as runtime, connect(runtime.open, token=TOKEN) as client:
        job, _ = await client.submit("echo"), await client.submit("echo")
        await wait_all_tasks_blocked()
        assert kept() <= 20
        assert [event.seq async for event in job.events()] == list(range(1, 2_001))


async def test_events_without_a_handle_are_not_kept(autojump_clock: MockClock) -> None:
    """Events of a job without a handle are not kept."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        for _ in range(20):
            await client.submit("count", 50)
        await trio.sleep(1)
        assert kept() <= MOST
        job = await client.submit("count", 50)
        assert len([event async for event in job.events()]) == 50


async def _read_one(client: Client) -> None:
    job = await client.submit("count", 20)
    assert len([event async for event in job.events()]) == 20
    await job.result()


async def test_memory_is_given_back(autojump_clock: MockClock) -> None:
    """A client keeps nothing of jobs that have ended, once their handles are gone."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        for _ in range(100):
            await _read_one(client)
        gc.collect()
        await wait_all_tasks_blocked()
        session = client._session
        assert session.jobs.running == {}
        assert list(session.calls) == []
        assert session.unread.backlogs == set()
        assert not session.unread.full
        assert (session.unread._events, session.unread._bytes) == (0, 0)
        assert kept() == 0
