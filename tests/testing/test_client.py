"""The small client: order, answers, back-pressure."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import arcp_trio
from arcp_trio import JobContext, Runtime
from arcp_trio.testing import Event, JobHandle, PairClient, open_pair
from arcp_trio.testing.client import EventHandler
from arcp_trio.testing.inbox import UNREAD_EVENTS
from arcp_trio.testing.pair import open_transport
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.transport import Transport, TransportClosed
from arcp_trio.wire.errors import (
    AgentNotAvailable,
    AgentVersionNotAvailable,
    DuplicateKey,
    InvalidRequest,
    JobCancelled,
    JobFailed,
    JobTimedOut,
    Unauthenticated,
)

FALLING_SECONDS = (0.150, 0.120, 0.090, 0.060, 0.030)
"""How long the handler takes over each of five events: each would overtake the one before."""


@pytest.fixture
def arcp_runtime(arcp_runtime: Runtime) -> Runtime:
    """Register the agents of these tests."""

    @arcp_runtime.agent("chatty", version="1.0.0")
    async def chatty(job: JobContext) -> object:
        for n in range(job.input):
            await job.log(str(n))
        return job.input

    @arcp_runtime.agent("sleeper", version="1.0.0")
    async def sleeper(job: JobContext) -> None:
        await trio.sleep(job.input)

    @arcp_runtime.agent("failing", version="1.0.0")
    async def failing(job: JobContext) -> None:
        await job.log("about to")
        raise arcp_trio.JobError("as told", {"why": "told"})

    return arcp_runtime


class _Handler:
    """An event handler that takes its time and notes what runs when."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []

    async def __call__(self, event: Event) -> None:
        self.log.append(("begin", event.seq))
        await trio.sleep(FALLING_SECONDS[event.seq - 1])
        self.log.append(("end", event.seq))

    def assert_in_order(self) -> None:
        expected = [(what, seq) for seq in range(1, 6) for what in ("begin", "end")]
        assert self.log == expected


class _HastyClient(PairClient):
    """A client with the defect: each event is handled in a task of its own."""

    def __init__(self, transport: Transport, nursery: trio.Nursery, handler: _Handler) -> None:
        super().__init__(transport, on_event=handler)
        self._nursery = nursery
        self._handler = handler

    async def _hand_on(self, event: Event) -> None:
        self._nursery.start_soon(self._handler, event)
        self._inbox.event_read()


async def test_handlers_run_one_at_a_time_and_in_order(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Five events into a handler with falling delays are handled in order, before the result."""
    handler = _Handler()
    async with open_pair(arcp_runtime, on_event=handler) as client:
        job = await client.submit("chatty", 5)
        await job.result()
        handler.assert_in_order()


async def test_the_check_of_the_order_finds_a_client_without_it(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """The same check fails for a client that starts each handler as its own task."""
    handler = _Handler()
    async with open_transport(arcp_runtime) as (transport, _), trio.open_nursery() as nursery:
        client = _HastyClient(transport, nursery, handler)
        async with client.session(token=TEST_TOKEN):
            job = await client.submit("chatty", 5)
            await job.result()
            await trio.sleep(1)
    assert len(handler.log) == 10
    with pytest.raises(AssertionError):
        handler.assert_in_order()


@pytest.mark.parametrize("events", [2, 3 * UNREAD_EVENTS])
async def test_a_handler_may_submit_and_wait(
    arcp_runtime: Runtime, autojump_clock: MockClock, events: int
) -> None:
    """A handler's own submit is answered although the events before the answer wait for it.

    Also with more events between than are read without anyone to read them.
    """
    results: list[object] = []
    seen: list[int] = []

    async def handler(event: Event) -> None:
        if event.seq == 1:
            inner = await client.submit("chatty", 1)
            results.append(await inner.result())
        seen.append(event.seq)

    async with open_pair(arcp_runtime, on_event=handler) as client:
        job = await client.submit("chatty", events)
        assert await job.result() == events
    assert results == [1]
    assert len(seen) == events + 1
    assert seen == sorted(seen)


async def test_a_handler_may_submit_from_tasks_of_its_own(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """What a handler starts in a nursery does not wait for the handler either."""
    results: list[object] = []

    async def submit() -> None:
        job = await client.submit("chatty", 0)
        results.append(await job.result())

    async def handler(event: Event) -> None:
        if event.seq == 1:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(submit)
                nursery.start_soon(submit)

    async with open_pair(arcp_runtime, on_event=handler) as client:
        await (await client.submit("chatty", 3)).result()
    assert results == [0, 0]


async def test_two_clients_whose_handlers_call_each_other(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Handlers that wait for jobs of the other client, whose handler waits for them, all return."""
    depth: list[str] = []

    def handler(name: str, other: Callable[[], PairClient]) -> EventHandler:
        async def handle(_: Event) -> None:
            if len(depth) < 10:
                depth.append(name)
                await (await other().submit("chatty", 1)).result()

        return handle

    async with (
        open_pair(arcp_runtime, on_event=handler("left", lambda: right)) as left,
        open_pair(arcp_runtime, on_event=handler("right", lambda: left)) as right,
    ):
        await (await left.submit("chatty", 1)).result()
        await trio.sleep(1)
    assert len(depth) == 10


async def test_pings_are_answered_while_a_handler_works(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A handler that takes ten minutes does not cost the connection."""

    async def handler(_: Event) -> None:
        await trio.sleep(600)

    async with open_pair(arcp_runtime, on_event=handler) as client:
        job = await client.submit("chatty", 1)
        assert await job.result() == 1
        assert await (await client.submit("chatty", 0)).result() == 0


async def test_leaving_waits_for_the_handlers(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Events that had arrived when the client was left are handled, and not thrown away."""
    seen: list[int] = []

    async def handler(event: Event) -> None:
        await trio.sleep(0.001)
        seen.append(event.seq)

    async with open_pair(arcp_runtime, on_event=handler) as client:
        await client.submit("chatty", 1_000)
        await wait_all_tasks_blocked()
    assert seen == list(range(1, 1_001))


async def test_events_are_kept_until_asked_for(arcp_client: PairClient) -> None:
    """Events that nobody waited for are there afterwards, each once."""
    job = await arcp_client.submit("chatty", 3)
    assert await job.result() == 3
    assert [event.body["message"] async for event in job.events()] == ["0", "1", "2"]
    assert [event async for event in job.events()] == []


async def test_an_event_has_all_its_parts(arcp_client: PairClient) -> None:
    """What an event says is what stood on the wire."""
    job = await arcp_client.submit("chatty", 1)
    [event] = [event async for event in job.events()]
    [frame] = arcp_client.recorder.events(job.id)
    assert event == Event(
        seq=1,
        job_id=job.id,
        kind="log",
        body={"level": "info", "message": "0"},
        ts=frame["payload"]["ts"],
    )


async def test_iteration_can_be_left_and_taken_up(arcp_client: PairClient) -> None:
    """An iteration left by `break` loses nothing and needs no closing."""
    job = await arcp_client.submit("chatty", 4)
    async for event in job.events():
        if event.seq == 2:
            break
    assert [event.seq async for event in job.events()] == [3, 4]


async def test_unread_events_hold_the_network_up(
    arcp_client: PairClient, autojump_clock: MockClock
) -> None:
    """With nobody reading, the client stops at its bound; nothing is lost by it."""
    job = await arcp_client.submit("chatty", 5 * UNREAD_EVENTS)
    await trio.sleep(5)
    assert len(arcp_client.recorder.events(job.id)) == UNREAD_EVENTS
    seqs = [event.seq async for event in job.events()]
    assert seqs == list(range(1, 5 * UNREAD_EVENTS + 1))


async def test_a_slow_handler_holds_the_network_up(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """A handler that falls behind bounds what is read, although the result is being waited for."""
    seen: list[int] = []
    ahead: list[int] = []

    async def handler(event: Event) -> None:
        await trio.sleep(0.001)
        seen.append(event.seq)
        ahead.append(client.recorder.highest(client.session_id) - event.seq)

    async with open_pair(arcp_runtime, on_event=handler) as client:
        await (await client.submit("chatty", 4 * UNREAD_EVENTS)).result()
    assert seen == list(range(1, 4 * UNREAD_EVENTS + 1))
    assert max(ahead) <= UNREAD_EVENTS


async def test_jobs_side_by_side_each_get_their_own(
    arcp_client: PairClient, autojump_clock: MockClock
) -> None:
    """Fifty submits at once: each result and each event is of the right job."""
    jobs: dict[int, JobHandle] = {}

    async def run(n: int) -> None:
        jobs[n] = await arcp_client.submit("chatty", n)
        assert await jobs[n].result() == n
        assert [e.job_id async for e in jobs[n].events()] == [jobs[n].id] * n

    async with trio.open_nursery() as nursery:
        for n in range(50):
            nursery.start_soon(run, n)
    assert len({job.id for job in jobs.values()}) == 50


async def test_one_job_is_awaited_past_the_unread_events_of_another(
    arcp_client: PairClient, autojump_clock: MockClock
) -> None:
    """Events that nobody reads do not stand between a caller and its answer."""
    loud = await arcp_client.submit("chatty", 3 * UNREAD_EVENTS)
    assert await (await arcp_client.submit("chatty", 1)).result() == 1
    assert len([event async for event in loud.events()]) == 3 * UNREAD_EVENTS


async def test_what_the_welcome_says(arcp_client: PairClient) -> None:
    """Session, features and agents are those of the welcome."""
    assert arcp_client.session_id.startswith("sess_")
    assert arcp_client.features == {"heartbeat", "progress", "agent_versions"}
    assert all(agent.keys() >= {"name", "versions"} for agent in arcp_client.agents)


async def test_a_refused_session(arcp_runtime: Runtime) -> None:
    """A wrong token raises the class of its code, ungrouped."""
    with pytest.raises(Unauthenticated):
        async with open_pair(arcp_runtime, token="wrong"):
            pass


@pytest.mark.parametrize(
    ("agent", "refusal"),
    [
        ("nobody", AgentNotAvailable),
        ("chatty@9", AgentVersionNotAvailable),
        ("NO AGENT", InvalidRequest),
    ],
)
async def test_a_refused_submit_fails_alone(
    arcp_client: PairClient, agent: str, refusal: type[Exception]
) -> None:
    """A refusal raises the class of its code; other jobs notice nothing."""
    job = await arcp_client.submit("chatty", 2)
    with pytest.raises(refusal):
        await arcp_client.submit(agent, 1)
    assert await job.result() == 2


async def test_a_key_gives_the_same_job(arcp_client: PairClient) -> None:
    """A submission repeated under its key is the same job; with other input it is refused."""
    job = await arcp_client.submit("chatty", 1, idempotency_key="k")
    assert (await arcp_client.submit("chatty", 1, idempotency_key="k")).id == job.id
    with pytest.raises(DuplicateKey):
        await arcp_client.submit("chatty", 2, idempotency_key="k")


async def test_a_job_that_fails(arcp_client: PairClient) -> None:
    """The agent's words come out as JobFailed with the terminal's code; its events just end."""
    job = await arcp_client.submit("failing")
    with pytest.raises(JobFailed, match="as told") as caught:
        await job.result()
    assert (caught.value.code, caught.value.details) == ("INTERNAL_ERROR", {"why": "told"})
    assert len([event async for event in job.events()]) == 1


async def test_a_job_that_is_cancelled(arcp_client: PairClient, autojump_clock: MockClock) -> None:
    """Cancelling returns when acknowledged; the result says so, and a second time is refused."""
    job = await arcp_client.submit("sleeper", 60)
    await job.cancel("enough")
    with pytest.raises(JobCancelled):
        await job.result()
    with pytest.raises(InvalidRequest):
        await job.cancel()


async def test_a_job_that_runs_too_long(arcp_client: PairClient, autojump_clock: MockClock) -> None:
    """A job past its `max_runtime` raises JobTimedOut."""
    job = await arcp_client.submit("sleeper", 60, max_runtime=1)
    with pytest.raises(JobTimedOut):
        await job.result()


async def test_a_submit_given_up_leaves_the_client_usable(
    arcp_client: PairClient, autojump_clock: MockClock
) -> None:
    """A caller that is cancelled while it waits takes nobody else's answer with it."""
    for _ in range(10):
        with trio.move_on_after(0) as scope:
            await arcp_client.submit("chatty", 1)
        assert scope.cancelled_caught
    assert await (await arcp_client.submit("chatty", 7)).result() == 7


async def test_a_lost_connection_is_told_to_all_who_wait(
    arcp_runtime: Runtime, autojump_clock: MockClock
) -> None:
    """Results, events and later calls raise TransportClosed: never a silent end."""
    async with open_transport(arcp_runtime) as (transport, stream):
        client = PairClient(transport)
        async with client.session(token=TEST_TOKEN):
            job = await client.submit("sleeper", 60)
            await stream.aclose()
            with pytest.raises(TransportClosed):
                await job.result()
            with pytest.raises(TransportClosed):
                await anext(job.events())
            with pytest.raises(TransportClosed):
                await client.submit("sleeper", 1)
