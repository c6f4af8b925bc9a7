"""Leaving `async with runtime`: jobs end, clients are told, sockets close, all within bounds."""

from __future__ import annotations

import logging
import random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import ArcpError, JobContext, Limits, MemoryStore
from arcp_trio.log_lines import fields_of
from arcp_trio.store.queue import Group
from arcp_trio.store.writes import AcceptJob, FinishJob, Write
from arcp_trio.transport import TransportClosed
from arcp_trio.wire.json import Json
from tests.footprint import tasks
from tests.jobs.leaving import GOING_AWAY, Clients, Listener, clients_of
from tests.stage import make_runtime, simple_agents, stubborn_agents

GRACE = 2
"""Seconds that agents get at shutdown to clean up."""


class Ledger(MemoryStore):
    """A store that notes which jobs were accepted and how each ended."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[str] = []
        self.ended: dict[str, str] = {}

    def put(self, write: Write) -> Group:
        """Note an acceptance or an end, and store the write."""
        if isinstance(write, AcceptJob):
            self.accepted.append(write.row.job_id)
        elif isinstance(write, FinishJob):
            assert write.job_id not in self.ended
            self.ended[write.job_id] = write.status
        return super().put(write)


# -- what clients see


@pytest.mark.parametrize("how", ["return", "cancel", "error"])
async def test_leaving_ends_jobs_and_tells_everyone(how: str, autojump_clock: MockClock) -> None:
    """However the block is left, each client gets its terminals and then a Close with 1001."""
    before = tasks()
    runtime, raised = make_runtime(store=Ledger()), ValueError("the program's own")
    async with clients_of(runtime) as clients:
        listeners: list[Listener] = []
        with trio.CancelScope() as scope:
            try:
                async with runtime:
                    for _ in range(3):
                        peer = await clients.connect()
                        for _ in range(3):
                            await peer.submit("sleeper")
                        listeners.append(clients.listen(peer))
                    await wait_all_tasks_blocked()
                    if how == "cancel":
                        scope.cancel()
                        await trio.sleep_forever()
                    if how == "error":
                        raise raised
            except ValueError as error:
                assert error is raised  # noqa: PT017 - it comes out as itself, in no group
        assert scope.cancelled_caught == (how == "cancel")
        for listener in listeners:
            await listener.closed.wait()
            assert listener.types == ["job.error"] * 3
            for frame in listener.frames:
                assert frame["payload"]["code"] == "INTERNAL_ERROR"
                assert frame["payload"]["final_status"] == "error"
                assert frame["payload"]["retryable"] is True
            assert listener.code == GOING_AWAY
        assert len({frame["job_id"] for lis in listeners for frame in lis.frames}) == 9
    await wait_all_tasks_blocked()
    assert tasks() == before


async def test_leaving_an_idle_runtime_takes_no_time(autojump_clock: MockClock) -> None:
    """Leaving a runtime without clients and jobs takes no time."""
    begun = trio.current_time()
    async with make_runtime():
        pass
    assert trio.current_time() == begun


async def test_a_runtime_runs_once(autojump_clock: MockClock) -> None:
    """Entering a runtime a second time is a RuntimeError."""
    runtime = make_runtime()
    async with runtime:
        pass
    with pytest.raises(RuntimeError, match="runs once"):
        async with runtime:
            pass


async def test_clients_that_are_behind_get_everything_before_the_close(
    autojump_clock: MockClock,
) -> None:
    """A client that is behind gets ten thousand events and the terminal before the Close."""
    runtime = make_runtime(limits=Limits(tail_frames=100))
    talked = trio.Event()

    @runtime.agent("talker")
    async def talker(job: JobContext) -> Json:
        for number in range(10_000):
            await job.metric("n", number)
        talked.set()
        await trio.sleep_forever()

    async with clients_of(runtime) as clients:
        async with runtime:
            peer = await clients.connect(hello=False)
            await peer.hello(features=())  # without ack, it gets no notice of falling behind
            await peer.submit("talker")
            await talked.wait()
            listener = clients.listen(peer)
        await listener.closed.wait()
        assert listener.types == ["job.event"] * 10_000 + ["job.error"]
        assert listener.code == GOING_AWAY


async def test_jobs_of_absent_clients_end_in_the_store(autojump_clock: MockClock) -> None:
    """A job of a parked session gets its end in the store like every other."""
    store = Ledger()
    runtime = make_runtime(store=store)
    async with clients_of(runtime) as clients, runtime:
        peer = await clients.connect()
        job = await peer.submit("sleeper")
        await peer.drop()
        await trio.sleep(60)
    assert store.ended == {job["job_id"]: "error"}


@pytest.mark.parametrize("hello", [False, True])
async def test_a_connection_without_jobs_is_closed_like_the_others(
    hello: bool,  # noqa: FBT001 - a parameter of the test
    autojump_clock: MockClock,
) -> None:
    """A connection with or without a session is closed with 1001 at once."""
    runtime = make_runtime()
    async with clients_of(runtime) as clients:
        async with runtime:
            listener = clients.listen(await clients.connect(hello=hello))
            await trio.sleep(1)
            begun = trio.current_time()
        assert trio.current_time() - begun < 1
        await listener.closed.wait()
        assert listener.frames == []
        assert listener.code == GOING_AWAY


# -- bounds


async def test_an_agent_gets_a_short_grace_to_clean_up(autojump_clock: MockClock) -> None:
    """An agent has two seconds to clean up, however long the grace of a cancel is."""
    runtime = make_runtime(limits=Limits(cancel_grace_seconds=30))

    @runtime.agent("tidy")
    async def tidy(job: JobContext) -> Json:
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(10, shield=True):
                await trio.sleep(1)
                await job.log("tidied up")

    async with clients_of(runtime) as clients:
        async with runtime:
            peer = await clients.connect()
            await peer.submit("tidy")
            listener = clients.listen(peer)
        await listener.closed.wait()
        assert listener.types == ["job.event", "job.error"]


async def test_an_agent_that_will_not_go_is_waited_for_and_named(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """The program waits for an agent that does not stop, and the log names it."""
    runtime = make_runtime()

    @runtime.agent("immovable")
    async def immovable(_job: JobContext) -> Json:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)

    async with clients_of(runtime) as clients:
        async with runtime:
            peer = await clients.connect()
            job = await peer.submit("immovable")
            listener = clients.listen(peer)
            await trio.sleep(0.5)
            begun = trio.current_time()
            clients._nursery.start_soon(_closed_within, listener, GRACE + 1)
        assert trio.current_time() - begun == pytest.approx(59.5, abs=0.1)
        assert listener.frames[-1]["payload"]["code"] == "INTERNAL_ERROR"
        assert listener.code == GOING_AWAY
    warnings = [fields_of(r) for r in caplog.records if r.levelno == logging.WARNING]
    assert any(
        (its.get("agent"), its.get("job_id")) == ("immovable@1.0.0", job["job_id"])
        for its in warnings
    )


async def _closed_within(listener: Listener, seconds: float) -> None:
    with trio.fail_after(seconds):
        await listener.closed.wait()


async def test_neither_deaf_clients_nor_deaf_agents_hold_up_the_end(
    autojump_clock: MockClock,
) -> None:
    """Agents that do not stop and clients that do not read delay the end by less than 5 s."""
    store = Ledger()
    runtime = make_runtime(
        simple_agents, stubborn_agents, store=store, limits=Limits(frame_bytes_out=2**20)
    )

    @runtime.agent("flood")
    async def flood(job: JobContext) -> Json:
        while True:
            await job.log("x" * 100_000)
            await trio.sleep(0.01)

    async with clients_of(runtime) as clients:
        async with runtime:
            for _ in range(3):
                peer = await clients.connect()
                await peer.submit("flood")
                await peer.submit("stubborn", 4)
            await trio.sleep(0.5)
            begun = trio.current_time()
        assert trio.current_time() - begun < 5
    assert sorted(store.ended) == sorted(store.accepted)


class SlowAccepts(Ledger):
    """A store that takes a second for each group with an acceptance in it."""

    async def _commit(self, writes: object) -> None:
        if any(isinstance(write, AcceptJob) for write in writes):  # type: ignore[attr-defined]
            await trio.sleep(1)
        await super()._commit(writes)  # type: ignore[arg-type]


async def test_a_submit_that_is_being_stored_gets_its_answer(autojump_clock: MockClock) -> None:
    """A submit that is being stored is accepted and ended, or refused; no job stays pending."""
    store = SlowAccepts()
    runtime = make_runtime(store=store)
    async with clients_of(runtime) as clients:
        async with runtime:
            peer = await clients.connect()
            await peer.send("job.submit", {"agent": "sleeper"})
            await trio.sleep(0.5)
            listener = clients.listen(peer)
            begun = trio.current_time()
        assert trio.current_time() - begun < 5
        await listener.closed.wait()
        assert listener.types == ["job.accepted", "job.error"]
    assert sorted(store.ended) == sorted(store.accepted)


async def _misbehave(clients: Clients, chance: random.Random) -> None:
    try:
        peer = await clients.connect()
        for _ in range(chance.randrange(3)):
            await peer.submit(chance.choice(["echo", "sleeper"]))
        await trio.sleep(chance.random() / 100)
        match chance.randrange(4):
            case 0:
                await peer.send("session.close")
            case 1:
                await peer.drop()
            case 2:
                await peer.close()
            case _:
                clients.listen(peer)
    except (ArcpError, TransportClosed, AssertionError) as error:
        # A refusal and a closed connection are both right; a frame out of place is not.
        if isinstance(error, AssertionError) and "has not been entered" not in str(error):
            raise


@pytest.mark.parametrize("seed", range(20))
async def test_clients_come_and_go_while_the_runtime_ends(
    seed: int, autojump_clock: MockClock
) -> None:
    """While clients close, drop and submit, the runtime ends in time and ends every job."""
    chance = random.Random(seed)
    store = Ledger()
    runtime = make_runtime(store=store, limits=Limits(jobs_per_principal=1000))
    async with clients_of(runtime) as clients, trio.open_nursery() as crowd:
        async with runtime:
            for _ in range(40):
                crowd.start_soon(_misbehave, clients, chance)
            await trio.sleep(chance.random() / 50)
            begun = trio.current_time()
        assert trio.current_time() - begun < 5
        crowd.cancel_scope.cancel()
    assert sorted(store.ended) == sorted(store.accepted)
