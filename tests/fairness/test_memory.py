"""What one principal makes the runtime hold in memory is bounded, and holds up no other one."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio import JobContext, Json, Limits, MemoryStore, Runtime
from arcp_trio.testing import Peer, PeerFactory
from arcp_trio.wire.errors import ArcpError
from tests.metrics import scrape
from tests.stage import BOB, Stage

KB = 1_000
WIDE_LEASE = {"tool.call": [f"{number:03}{'x' * 400}" for number in range(150)]}
"""A lease of nearly the most bytes that it may have."""
REST_SECONDS = 20
"""A virtual time in which every large frame is decoded, with the rests between them."""


class World(Stage[MemoryStore]):
    """A stage with an agent that sleeps, and one that returns its input."""

    features = ("list_jobs", "subscribe", "agent_versions")

    def __init__(self, runtime: Runtime, peers: PeerFactory, store: MemoryStore) -> None:
        super().__init__(runtime, peers, store)

        @runtime.agent("sleeper")
        async def sleeper(_job: JobContext) -> Json:
            """Sleep until the job is ended."""
            await trio.sleep_forever()

        @runtime.agent("echo")
        async def echo(job: JobContext) -> Json:
            """Return the input."""
            return job.input

    def held(self, pool: str) -> float:
        """Return what all principals hold of a pool."""
        return scrape(self.runtime)("held", pool=pool)


def open_world(**limits: int) -> AbstractAsyncContextManager[World]:
    """Run a world with these limits."""
    return World.open(MemoryStore(), limits=Limits(**limits))


async def ask_for_lists(peer: Peer, count: int) -> None:
    """Ask for `count` listings, and read none of them."""
    for _ in range(count):
        await peer.send("session.list_jobs", {"page_size": 100})


async def echoes(peer: Peer) -> None:
    """Have a job done from its submit to its result, in no time."""
    before = trio.current_time()
    job = await peer.submit("echo", "hello")
    await peer.until_terminal(job["job_id"])
    assert trio.current_time() == before


async def test_answers_that_nobody_reads_are_bounded(autojump_clock: MockClock) -> None:
    """A client that asks for much and reads nothing has no more executed past `outbox_bytes`."""
    async with open_world(outbox_bytes=2_000 * KB) as world, trio.open_nursery() as nursery:
        alice, bob = await world.welcomed(), await world.welcomed(token=BOB)
        for _ in range(14):
            await alice.submit("sleeper", lease_request=WIDE_LEASE)
        nursery.start_soon(ask_for_lists, alice, 300)
        await wait_all_tasks_blocked()
        # What is past the bound: the answer that reached it, and a frame on its way to the socket.
        assert 2_000 * KB <= world.held("tail_bytes") <= 2_000 * KB + 2 * 1_000 * KB
        await echoes(bob)
        for _ in range(300):
            assert len((await alice.expect("session.jobs"))["payload"]["jobs"]) == 14
        await wait_all_tasks_blocked()
        assert world.held("tail_bytes") == 0


async def test_sessions_that_do_not_read_share_their_principals_bound(
    autojump_clock: MockClock,
) -> None:
    """Past `tail_bytes_per_principal` each further session gets one answer at a time."""
    most = 3_000 * KB
    async with (
        open_world(outbox_bytes=2_000 * KB, tail_bytes_per_principal=most) as world,
        trio.open_nursery() as nursery,
    ):
        bob = await world.welcomed(token=BOB)
        peers = [await world.welcomed() for _ in range(8)]
        for _ in range(7):
            await peers[0].submit("sleeper", lease_request=WIDE_LEASE)
        for peer in peers:
            nursery.start_soon(ask_for_lists, peer, 100)
        await wait_all_tasks_blocked()
        answer = 7 * 64 * KB
        assert most <= world.held("tail_bytes") <= most + (len(peers) + 1) * answer
        await echoes(bob)
        for peer in peers:
            await peer.drop()
        await wait_all_tasks_blocked()
        assert world.held("tail_bytes") == 0
        nursery.cancel_scope.cancel()


async def test_no_frame_is_larger_than_it_may_be(autojump_clock: MockClock) -> None:
    """A lease of more than 64 KiB is refused, so that a listing always fits into a frame."""
    async with open_world() as world:
        alice = await world.welcomed()
        lease = {"tool.call": ["x" * 1_000] * 66}
        with pytest.raises(ArcpError, match="bytes of patterns") as refused:
            await alice.submit("sleeper", lease_request=lease)
        assert refused.value.code == "INVALID_REQUEST"


async def test_inputs_of_jobs_are_bounded(autojump_clock: MockClock) -> None:
    """Inputs are bounded by principal and in all; a principal that holds little is served."""
    limits = {"input_bytes_per_principal": 600 * KB, "input_bytes_total": 800 * KB}
    async with open_world(**limits) as world:
        alice, bob = await world.welcomed(), await world.welcomed(token=BOB)
        last = [await alice.submit("sleeper", "x" * 190 * KB) for _ in range(3)][-1]
        with pytest.raises(ArcpError) as refused:
            await alice.submit("sleeper", "x" * 100 * KB)
        assert refused.value.details["limit"] == "input_bytes_per_principal"
        await bob.submit("sleeper", "x" * 240 * KB)
        with pytest.raises(ArcpError) as refused:
            await alice.submit("sleeper", "x" * 10 * KB)
        assert refused.value.details["limit"] == "input_bytes_total"
        await echoes(bob)
        await alice.send("job.cancel", {"job_id": last["job_id"]})
        await alice.until_terminal(last["job_id"])
        await alice.submit("sleeper", "x" * 100 * KB)


async def test_an_input_is_kept_as_it_came(autojump_clock: MockClock) -> None:
    """A job whose agent has not read its input holds the bytes of it, not the objects."""
    async with open_world() as world:
        alice = await world.welcomed()
        await alice.submit("sleeper", [[] for _ in range(10 * KB)])
        assert world.held("input_bytes") == 3 * 10 * KB + 1


@pytest.mark.parametrize("limit", ["received_bytes_per_principal", "received_bytes_total"])
async def test_what_one_principal_sends_holds_up_no_other(
    autojump_clock: MockClock, limit: str
) -> None:
    """Requests that wait in many sessions of a principal are bounded together."""
    most = 1_000 * KB
    async with open_world(**{limit: most}) as world, trio.open_nursery() as nursery:
        bob = await world.welcomed(token=BOB)
        peers = [await world.welcomed() for _ in range(10)]
        look = world.store.owner
        go_on = trio.Event()

        async def slow_look(job_id: str) -> object:
            if job_id == "job_slow":
                await go_on.wait()
            return await look(job_id)

        world.store.owner = slow_look  # type: ignore[method-assign, assignment]

        async def send(peer: Peer) -> None:
            await peer.send("job.cancel", {"job_id": "job_slow"})
            for _ in range(10):
                await peer.send("job.submit", {"agent": "nobody", "input": "x" * 100 * KB})

        for peer in peers:
            nursery.start_soon(send, peer)
        await trio.sleep(REST_SECONDS)
        await wait_all_tasks_blocked()
        assert most <= world.held("received_bytes") <= most + 101 * KB
        await echoes(bob)
        go_on.set()
        for peer in peers:
            await peer.expect("session.error", code="JOB_NOT_FOUND")
            for _ in range(10):
                await peer.expect("session.error", code="AGENT_NOT_AVAILABLE")
        assert world.held("received_bytes") == 0
