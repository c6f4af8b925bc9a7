"""The store fails, or the process dies, at any commit: no key stays alive upstream (§14)."""

from __future__ import annotations

import copy
from itertools import count

import attrs
import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, Json, MemoryStore
from arcp_trio.store.records import CredentialState
from tests.credentials.runtimes import SafeStore, providing_runtime
from tests.credentials.upstream import SECRET, Upstream
from tests.durability import story
from tests.durability.stores import FaultyStore, WatchedStore, copy_into
from tests.durability.story import Client, World, two_clients

TROUBLE = "store in trouble"


class SafeFaultyStore(FaultyStore):
    """A faulty store that says it is durable."""

    durable = True


class SafeWatchedStore(WatchedStore):
    """A watched store that says it is durable."""

    durable = True


@pytest.fixture(autouse=True)
def _negotiated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "FEATURES", (*story.FEATURES, "provisioned_credentials"))


def provided_world(store: MemoryStore, upstream: Upstream) -> World:
    """Return a world in which jobs get credentials."""
    world = World(store, provisioner=upstream)

    @world.runtime.agent("rotator")
    async def rotator(job: JobContext) -> Json:
        """Log and rotate as many times as the input says."""
        for n in range(job.input):
            await job.log(str(n))
            await trio.sleep(0.2)
            await job.rotate(job.credentials[0].id)

    return world


async def tell_story(one: Client, other: Client) -> None:
    """Run jobs that rotate, that are cancelled, and whose submitter is away at their end."""
    rotating = await one.submit("rotator", 2, key="rotating")
    cancelled = await other.submit("waiter", key="cancelled")
    await one.drop()
    plain = await other.submit("teller", 1, key="plain")
    await other.cancel(cancelled)
    one.come_back()
    await one.end_of(rotating)
    await other.end_of(plain)


@pytest.mark.spec("14-13")
@pytest.mark.logs_error(TROUBLE)
@pytest.mark.parametrize("applied", [False, True], ids=["not stored", "stored"])
@pytest.mark.parametrize("seconds", [0, 7])
async def test_every_commit_may_fail(
    seconds: float, autojump_clock: MockClock, *, applied: bool
) -> None:
    """Whichever commit fails, every key is revoked by the next start at the latest."""
    for n in count(1):
        upstream = Upstream(slow=0.05, slow_answer=0.05, slow_revoke=0.05)
        store = SafeFaultyStore(commit=n, seconds=seconds, applied=applied)
        world = provided_world(store, upstream)
        async with world.runtime, two_clients(world) as (one, other):
            await tell_story(one, other)
        kept = copy_into(SafeStore(), store)
        await check_nothing_outlives(kept, upstream)
        if not store.failed:
            break
    assert n > 20


async def check_nothing_outlives(store: SafeStore, upstream: Upstream) -> None:
    """Start another runtime over the store, and check that it revokes every key."""
    assert SECRET not in repr(vars(store))
    async with providing_runtime(upstream, store):
        assert upstream.live == set()
        await trio.sleep(15)
        assert upstream.live == set()
        assert store.credentials == []


@attrs.frozen
class Moment:
    """The store before a commit, and the keys alive upstream at that time."""

    store: SafeStore
    upstream: Upstream


@pytest.mark.spec("14-13")
async def test_dying_at_every_commit(autojump_clock: MockClock) -> None:
    """After a crash at any commit the next start revokes every key before serving.

    Keys that are minted after the crash, for orders on their way, are revoked, too.
    """
    upstream = Upstream(slow=0.05, slow_answer=0.05, slow_revoke=0.05)
    moments: list[Moment] = []

    async def keep_moment() -> None:
        for _ in range(3):  # by then what is due has been sent, and asked of the upstream
            await trio.sleep(0.02)
            stored = copy_into(SafeStore(), store)
            moments.append(Moment(stored, copy.deepcopy(upstream)))

    store = SafeWatchedStore(keep_moment)
    world = provided_world(store, upstream)
    async with world.runtime, two_clients(world) as (one, other):
        await tell_story(one, other)
    # The story takes 20 commits, or 21, as a batch of the log may share one with what follows it;
    # each is three moments. What counts is that keys are met in every state: none is refused.
    assert len(moments) > 40
    met = {row.state for moment in moments for row in moment.store.credentials}
    assert met == set(CredentialState) - {CredentialState.UNREVOCABLE}
    assert max(len(moment.upstream.live) for moment in moments) > 1
    for moment in moments:
        upstream = moment.upstream
        async with providing_runtime(upstream, moment.store):
            assert upstream.live == set()
            for order in upstream.orders.values():
                if order.id not in upstream._minted:
                    upstream._new_key(order)
            await trio.sleep(15)
            assert upstream.live == set()
        await check_nothing_outlives(moment.store, upstream)
