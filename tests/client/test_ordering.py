"""Events and replies reach the program in the order of arrival, and handlers make calls."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import Client, Event, JobContext, connect
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.client.support import TOKEN, Network, Wire, real_runtime, scripted
from tests.inside import set_back_pressure_lag


@pytest.mark.parametrize("lines", [5, 1_000])
async def test_handlers_run_one_at_a_time_in_order(autojump_clock: MockClock, lines: int) -> None:
    """A handler gets events in order and one at a time, also if it is faster each time.

    When `result` returns, every event has been handled.
    """
    handled: list[int] = []
    running = 0

    async def on_event(event: Event) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await trio.sleep(0.001 * (lines - int(event.body["message"])))
        handled.append(int(event.body["message"]))
        running -= 1

    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, on_event=on_event) as client,
    ):
        job = await client.submit("count", lines)
        assert await job.result() == {"n": lines}
        assert handled == list(range(lines))


async def test_a_handler_submits_and_awaits(autojump_clock: MockClock) -> None:
    """A handler can wait for its own calls, and the order of events stays."""
    handled: list[str] = []

    async def on_event(event: Event) -> None:
        handled.append(f"begin {event.body['message']}")
        inner = await client.submit("echo", event.body["message"])
        handled.append(f"end {await inner.result()}")

    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, on_event=on_event) as client,
    ):
        job = await client.submit("count", 5)
        await job.result()
    assert handled == [f"{what} {n}" for n in range(5) for what in ("begin", "end")]


async def test_a_handler_calls_from_a_nursery_of_its_own(autojump_clock: MockClock) -> None:
    """Tasks that a handler starts can make calls as the handler does."""
    answers: list[object] = []

    async def ask(text: str) -> None:
        answers.append(await (await client.submit("echo", text)).result())

    async def on_event(event: Event) -> None:
        async with trio.open_nursery() as nursery:
            for n in range(3):
                nursery.start_soon(ask, f"{event.body['message']}.{n}")

    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, on_event=on_event) as client,
    ):
        await (await client.submit("count", 5)).result()
    assert sorted(map(str, answers)) == [f"{m}.{n}" for m in range(5) for n in range(3)]


async def test_a_handler_iterates_over_another_job(autojump_clock: MockClock) -> None:
    """A handler can read the events of another job."""
    read: list[str] = []

    async def on_event(event: Event) -> None:
        if event.kind == "status":
            inner = await client.submit("count", 3)
            read.extend([event.body["message"] async for event in inner.events()])

    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, on_event=on_event) as client,
    ):
        job = await client.submit("stuck")
        await trio.sleep(1)
        assert read == ["0", "1", "2"]
        await job.cancel()


async def test_handlers_of_two_clients_call_each_other(autojump_clock: MockClock) -> None:
    """Handlers of two clients that call each other, ten deep, all end."""
    begun = ended = 0

    async def through(client: Client) -> None:
        nonlocal begun, ended
        if begun < 10:
            begun += 1
            await (await client.submit("count", 1)).result()
            ended += 1

    async def on_first(_: Event) -> None:
        await through(second)

    async def on_second(_: Event) -> None:
        await through(first)

    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, on_event=on_first) as first,
        connect(Network(runtime).open, token=TOKEN, on_event=on_second) as second,
    ):
        await (await first.submit("count", 1)).result()
        await trio.sleep(1)
        assert (begun, ended) == (10, 10)


async def test_pings_are_answered_while_a_handler_is_busy(autojump_clock: MockClock) -> None:
    """Pings are answered while a handler is busy; what arrives after its event waits."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        await wire.log(1, "job_1", "busy")
        for n in range(10):
            await wire.send("session.ping", {"nonce": f"p{n}", "sent_at": "2026-01-01T00:00:00Z"})
            with trio.fail_after(0.5):
                pong = await wire.receive("session.pong")
            assert pong["payload"]["ping_nonce"] == f"p{n}"
        asked.set()
        await wire.result(2, "job_1", "done")
        await wire.end()

    async def on_event(_: Event) -> None:
        await trio.sleep(5)
        assert asked.is_set()

    asked = trio.Event()
    async with (
        scripted(script) as runtime,
        connect(runtime.open, token=TOKEN, on_event=on_event) as client,
    ):
        assert await (await client.submit("echo")).result() == "done"
        assert trio.current_time() >= 5


async def test_leaving_waits_for_the_handlers(autojump_clock: MockClock) -> None:
    """Leaving the block waits until the handler has had all events."""
    handled: list[Event] = []

    async def on_event(event: Event) -> None:
        await trio.sleep(0.001)
        handled.append(event)

    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, on_event=on_event) as client,
    ):
        observer = await client.submit("count", 1_000)
        async for event in observer.events():
            if event.body["message"] == "999":
                break
    assert [event.body["message"] for event in handled] == [str(n) for n in range(1_000)]


async def test_leaving_does_not_wait_for_ever(autojump_clock: MockClock) -> None:
    """Leaving the block cancels a handler that does not return."""

    async def on_event(_: Event) -> None:
        await trio.sleep_forever()

    async with real_runtime() as runtime:
        async with connect(Network(runtime).open, token=TOKEN, on_event=on_event) as client:
            await client.submit("count", 5)
            before = trio.current_time()
        assert trio.current_time() - before <= 5


async def test_events_before_the_handle_are_kept(autojump_clock: MockClock) -> None:
    """Events that come with the acceptance are kept for the handle."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        for n in range(1, 4):
            await wire.log(n, "job_1", str(n))
        await wire.result(4, "job_1")
        await wire.end()

    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        await trio.sleep(10)
        assert [event.seq async for event in job.events()] == [1, 2, 3]


async def test_a_late_iteration_gets_all_and_then_what_is_live(autojump_clock: MockClock) -> None:
    """An iteration that begins late gets the earlier events at once, and then live ones."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        job = await client.submit("paced", 6)
        await trio.sleep(3.5)
        seen = [(event.body["message"], trio.current_time()) async for event in job.events()]
        assert [message for message, _ in seen] == ["0", "1", "2", "3", "4", "5"]
        assert len({when for _, when in seen}) == 4  # the first three at once


async def test_each_iteration_sees_every_event(autojump_clock: MockClock) -> None:
    """Iterations of one handle, and of several, each see every event, at their own pace."""
    numbers = [str(number) for number in range(6)]
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        job = await client.submit("paced", 6, idempotency_key="k")
        same = await client.submit("paced", 6, idempotency_key="k")
        first = job.events()
        assert [(await anext(first)).body["message"] for _ in range(2)] == numbers[:2]
        observed = await client.subscribe(job.id, history=True)
        late = await client.subscribe(job.id)
        seen: dict[str, list[str]] = {}

        async def read(name: str, events: AsyncIterator[Event], pause: float) -> None:
            seen[name] = []
            async for event in events:
                seen[name].append(event.body["message"])
                await trio.sleep(pause)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, "first", first, 0)
            nursery.start_soon(read, "same", same.events(), 3)
            nursery.start_soon(read, "observed", observed.events(), 0.1)
            nursery.start_soon(read, "late", late.events(), 0)
        assert seen["first"] == seen["late"] == numbers[2:]
        assert seen["same"] == seen["observed"] == numbers
        for handle in (job, same, observed):
            assert [event.body["message"] async for event in handle.events()] == numbers
        assert await job.result() == await observed.result() == {"n": 6}


@pytest.mark.parametrize("when", ["running", "ended"])
async def test_history_in_the_session_that_has_submitted(
    autojump_clock: MockClock, when: str
) -> None:
    """A job whose handle is gone is followed again with its history, as often as one asks."""
    numbers = [str(number) for number in range(4)]
    told: list[str] = []

    async def on_event(event: Event) -> None:
        told.append(event.body["message"])

    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, on_event=on_event) as client,
    ):
        job = await client.submit("paced", 4)
        job_id = job.id
        await trio.sleep(2.5)
        if when == "ended":
            await job.result()
        del job
        gc.collect()
        for _ in range(2):
            observed = await client.subscribe(job_id, history=True)
            assert [event.body["message"] async for event in observed.events()] == numbers
            assert await observed.result() == {"n": 4}
        again = await client.subscribe(job_id, history=True, from_event_seq=2)
        assert [event.body["message"] async for event in again.events()] == numbers[2:]
    assert (
        told
        == {
            "running": [*numbers[:2], *numbers, *numbers, *numbers[2:]],
            "ended": [*numbers, *numbers, *numbers, *numbers[2:]],
        }[when]
    ), "on_event gets the history that was asked for"


async def test_one_handle_less_is_not_the_end(autojump_clock: MockClock) -> None:
    """A handle that unsubscribes, or whose subscription is cancelled, ends no other."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as submitter,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        job = await submitter.submit("paced", 3)
        kept = await client.subscribe(job.id, history=True)
        left = await client.subscribe(job.id, history=True)
        events = left.events()
        await anext(events)
        await left.unsubscribe()
        with pytest.raises(StopAsyncIteration):
            await anext(events)
        with trio.move_on_after(0):
            await client.subscribe(job.id, history=True)
        assert [event.body["message"] async for event in kept.events()] == ["0", "1", "2"]
        assert await kept.result() == {"n": 3}


async def test_who_submits_what_it_observes_sees_all_and_doubles_none(
    autojump_clock: MockClock,
) -> None:
    """A submit under the key of an observed job is a handle of its own, from the first event on."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as submitter,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        job = await submitter.submit("paced", 3, idempotency_key="k")
        await trio.sleep(1.5)
        observed = await client.subscribe(job.id, history=True)
        events = observed.events()
        seen = [(await anext(events)).body["message"]]
        own = await client.submit("paced", 3, idempotency_key="k")
        assert [event.body["message"] async for event in own.events()] == ["0", "1", "2"]
        seen += [event.body["message"] async for event in events]
        assert seen == ["0", "1", "2"]


async def test_a_key_whose_job_has_ended(autojump_clock: MockClock) -> None:
    """A submit under the key of a job that has ended gives its events, too."""
    async with real_runtime() as runtime:
        for _ in range(2):
            async with connect(Network(runtime).open, token=TOKEN) as client:
                job = await client.submit("count", 3, idempotency_key="k")
                await job.result()
                for _ in range(2):
                    assert [event.body["message"] async for event in job.events()] == list("012")
                del job
                gc.collect()
                job = await client.submit("count", 3, idempotency_key="k")
                assert [event.body["message"] async for event in job.events()] == list("012")


async def test_a_key_whose_job_has_streamed_its_result(autojump_clock: MockClock) -> None:
    """A submit under the key of such a job gives the result, with or without its events."""
    async with real_runtime() as runtime:

        @runtime.agent("streamer")
        async def streamer(job: JobContext) -> None:
            async with job.stream_result() as out:
                await out.write("once ")
                await trio.sleep(1)
                await out.write("upon a time")

        for iterates in (False, True, False):
            async with connect(Network(runtime).open, token=TOKEN) as client:
                job = await client.submit("streamer", idempotency_key="k")
                if iterates:
                    assert len([event async for event in job.events()]) >= 2
                assert await job.result() == "once upon a time"
                assert await job.result() == "once upon a time"


async def test_notices_that_the_client_is_behind_are_no_history(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What tells of the session alone is in no history, and hides no event.

    Neither does what the session is not sent, because it has not negotiated it.
    """
    set_back_pressure_lag(monkeypatch, 6)
    features = [feature for feature in CLIENT_FEATURES if feature != "progress"]
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN, features=features) as client,
    ):
        orders, taken = trio.open_memory_channel[str](0)

        @runtime.agent("teller")
        async def teller(job: JobContext) -> None:
            await job.progress(1, 2)
            async for message in taken:
                await job.log(message)

        job = await client.submit("teller")
        events = job.events()
        said: list[str] = []
        while True:
            said.append(str(len(said)))
            await orders.send(said[-1])
            assert (await anext(events)).body["message"] == said[-1]
            with trio.move_on_after(0.001) as waiting:
                assert (await anext(events)).kind == "status"
            if not waiting.cancelled_caught:
                break  # the notice is the last event
        again = await client.subscribe(job.id, history=True)
        await orders.send("the last one")
        orders.close()
        assert [event.body["message"] async for event in events] == ["the last one"]
        seen = [event.body["message"] async for event in again.events()]
        assert seen == [*said, "the last one"]


async def test_a_streamed_result_is_assembled_from_history(autojump_clock: MockClock) -> None:
    """Chunks that come again are not doubled; a history completes what was observed in part."""
    async with (
        real_runtime() as runtime,
        connect(Network(runtime).open, token=TOKEN) as submitter,
        connect(Network(runtime).open, token=TOKEN) as client,
    ):
        release = trio.Event()

        @runtime.agent("halting")
        async def halting(job: JobContext) -> None:
            async with job.stream_result(encoding="utf8") as out:
                await out.write("one ")
                await release.wait()
                await out.write("two")

        job = await submitter.submit("halting")
        await anext(job.events())
        late = await client.subscribe(job.id)
        whole = [await client.subscribe(job.id, history=True) for _ in range(2)]
        again = await submitter.subscribe(job.id, history=True)
        release.set()
        for handle in (job, late, *whole, again):
            assert await handle.result() == "one two"
        for handle in (job, *whole, again):
            assert len([event async for event in handle.events()]) == 2


async def test_a_cancelled_program_stops_at_the_next_event(autojump_clock: MockClock) -> None:
    """An iteration over events that have arrived stops at a cancellation."""

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_1")
        for seq in range(1, 11):
            await wire.log(seq, "job_1", str(seq))
        await wire.end()

    taken: list[int] = []
    async with scripted(script) as runtime, connect(runtime.open, token=TOKEN) as client:
        job = await client.submit("echo")
        await wait_all_tasks_blocked()
        with trio.CancelScope() as scope:
            async for event in job.events():
                taken.append(event.seq)
                if event.seq == 3:
                    scope.cancel()
    assert taken == [1, 2, 3]


@pytest.mark.parametrize("round_", range(8))
async def test_a_handle_is_there_before_its_events(autojump_clock: MockClock, round_: int) -> None:
    """A submit returns before the event handler gets the job's first event.

    The order holds for all acceptances that came while the handler was busy, in any schedule.
    """

    async def script(wire: Wire) -> None:
        await wire.welcome()
        await wire.accept("job_0")
        await wire.log(1, "job_0", "busy")
        for n in range(1, 6):
            await wire.accept(f"job_{n}")
            await wire.log(n + 1, f"job_{n}", "first")
        await wire.end()

    known = {"job_0"}
    handled: list[str] = []

    async def on_event(event: Event) -> None:
        handled.append(event.job_id)
        assert event.job_id in known
        await trio.sleep(event.job_id == "job_0")

    async def submit(client: Client) -> None:
        known.add((await client.submit("echo", round_)).id)

    async with (
        scripted(script) as runtime,
        connect(runtime.open, token=TOKEN, on_event=on_event) as client,
        trio.open_nursery() as nursery,
    ):
        for _ in range(6):
            nursery.start_soon(submit, client)
    assert handled == [f"job_{n}" for n in range(6)]
