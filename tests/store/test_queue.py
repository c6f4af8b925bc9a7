"""The queue of every store: order, groups, room, and what waiting tasks wait for."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Sequence
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio.nurseries import tasks_beside
from arcp_trio.store.interface import Store
from arcp_trio.store.queue import KEPT_PLACES, QUEUE_BYTES, QUEUE_WRITES, Group, WriteQueue
from arcp_trio.store.records import Entry
from arcp_trio.store.writes import AppendJournal, DropSession, Write
from tests.store.engines import Feeder


def write(number: int) -> Write:
    """Return a write that is identified by its number."""
    return DropSession(f"sess_{number}")


class Disk:
    """Stores groups, in one second each."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.seconds = 1.0

    async def apply(self, writes: Sequence[Write]) -> None:
        """Store a group."""
        await trio.sleep(self.seconds)
        self.groups.append([w.session_id for w in writes if isinstance(w, DropSession)])

    @property
    def stored(self) -> list[str]:
        """All writes that are stored, in order."""
        return [each for group in self.groups for each in group]


@pytest.fixture
def disk() -> Disk:
    """The disk to which `queue` writes."""
    return Disk()


@pytest.fixture
async def queue(disk: Disk) -> AsyncGenerator[WriteQueue, None]:
    """A queue with a writer."""
    made = WriteQueue()
    async with tasks_beside() as nursery:
        nursery.start_soon(made.commit_groups, disk.apply)
        yield made


async def test_what_queues_while_a_group_commits_is_the_next_group(
    queue: WriteQueue, disk: Disk, autojump_clock: trio.abc.Clock
) -> None:
    """The writes queued during a commit are the next group, in their order."""
    queue.put(write(0))
    await trio.sleep(0.5)
    for number in range(1, 4):
        queue.put(write(number))
        await trio.sleep(0.1)
    await queue.flushed()
    assert disk.groups == [["sess_0"], ["sess_1", "sess_2", "sess_3"]]


async def test_a_group_says_what_was_refused() -> None:
    """What the engine refuses of a group is known to those who get it once it is stored."""

    async def commit(writes: Sequence[Write]) -> frozenset[str] | None:
        await trio.lowlevel.checkpoint()
        named = {w.session_id for w in writes if isinstance(w, DropSession)}
        return frozenset(named & {"sess_1"}) or None

    queue, (told, groups) = WriteQueue(), trio.open_memory_channel[Group](math.inf)
    async with tasks_beside() as nursery:
        nursery.start_soon(queue.commit_groups, commit)
        for number in (0, 1):
            queue.put(write(number)).tell(told)
            group = await groups.receive()
            assert group.stored.is_set()
            assert group.refused == ({"sess_1"} if number else frozenset())


async def test_the_writer_gives_way_once_before_it_takes(
    queue: WriteQueue, disk: Disk, autojump_clock: trio.abc.Clock
) -> None:
    """Writes that several runnable tasks put commit in one group."""

    async def put(number: int) -> None:
        queue.put(write(number))

    await wait_all_tasks_blocked()
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(put, number)
    await queue.flushed()
    assert [len(group) for group in disk.groups] == [20]


@pytest.fixture
async def paced() -> AsyncGenerator[tuple[WriteQueue, list[float]], None]:
    """A queue that takes groups of events two seconds apart, and the times at which it does."""
    made = WriteQueue()
    made.pace_seconds = 2.0
    times: list[float] = []

    async def commit(_: Sequence[Write]) -> None:
        await trio.lowlevel.checkpoint()
        times.append(trio.current_time())

    async with tasks_beside() as nursery:
        nursery.start_soon(made.commit_groups, commit)
        yield made, times


def event() -> Write:
    """Return a write for which nobody waits."""
    return AppendJournal("J", Entry(0, 1, b"tail"))


async def test_events_of_slow_agents_share_groups(
    paced: tuple[WriteQueue, list[float]], autojump_clock: trio.abc.Clock
) -> None:
    """The first event after a pause is stored at once, those right after it together."""
    queue, times = paced
    begun = trio.current_time()
    for _ in range(10):
        queue.put(event())
        await trio.sleep(0.5)
    await trio.sleep(10)
    queue.put(event())
    await trio.sleep(5)
    assert [at - begun for at in times] == pytest.approx([0, 2, 4, 6, 15])


async def test_what_somebody_waits_for_does_not_wait_for_company(
    paced: tuple[WriteQueue, list[float]], autojump_clock: trio.abc.Clock
) -> None:
    """A write of another kind, a flush and an emitter without room have the next group taken."""
    queue, times = paced
    begun = trio.current_time()
    await queue.put(event()).committed()
    queue.put(event())
    await queue.put(write(0)).committed()
    queue.put(event())
    await queue.flushed()
    for _ in range(QUEUE_WRITES):
        queue.put(event())
    await queue.room("alice")
    await queue.flushed()
    assert [at - begun for at in times] == [0.0] * 4


async def test_a_commit_is_an_await(
    queue: WriteQueue, disk: Disk, autojump_clock: trio.abc.Clock
) -> None:
    """A group is stored once its writes are applied and no earlier."""
    group = queue.put(write(0))
    assert not group.stored.is_set()
    begun = trio.current_time()
    await group.committed()
    assert (trio.current_time() - begun, disk.stored) == (1, ["sess_0"])


async def test_a_group_is_stored_after_those_before_it(
    queue: WriteQueue, autojump_clock: trio.abc.Clock
) -> None:
    """A group is stored after all groups before it."""
    first = queue.put(write(0))
    await trio.sleep(0.5)
    second = queue.put(write(1))
    assert first is not second
    await second.committed()
    assert first.stored.is_set()


@pytest.mark.parametrize("seconds", [0.0, 0.5])
async def test_flushed_covers_the_group_under_way(
    queue: WriteQueue, disk: Disk, seconds: float, autojump_clock: trio.abc.Clock
) -> None:
    """`flushed` also waits for the group that the writer has taken already."""
    queue.put(write(0))
    await trio.sleep(seconds)
    await queue.flushed()
    assert disk.stored == ["sess_0"]


async def test_flushed_does_not_wait_for_what_comes_later(
    queue: WriteQueue, autojump_clock: trio.abc.Clock
) -> None:
    """`flushed` does not wait for writes that come later."""
    queue.put(write(0))
    begun = trio.current_time()
    async with tasks_beside() as nursery:

        async def keep_putting() -> None:
            for number in range(1, 100):
                queue.put(write(number))
                await trio.sleep(0.25)

        nursery.start_soon(keep_putting)
        await queue.flushed()
        assert trio.current_time() - begun <= 2


async def test_flushed_with_nothing_to_do(
    queue: WriteQueue, autojump_clock: trio.abc.Clock
) -> None:
    """An idle queue is flushed at once."""
    with trio.fail_after(0.1):
        await queue.flushed()


async def room_after_kept_places(queue: WriteQueue) -> None:
    """Wait for room in a full queue, as a principal that has had its kept places."""
    begun = trio.current_time()
    for _ in range(KEPT_PLACES):
        await queue.room("alice")
    assert trio.current_time() == begun
    await queue.room("alice")


async def test_a_full_queue_has_room_once_the_writer_takes(
    queue: WriteQueue, disk: Disk, autojump_clock: trio.abc.Clock
) -> None:
    """Emitters wait until the writer takes the queue; nothing is dropped."""
    queue.put(write(0))
    await trio.sleep(0.5)
    for number in range(1, QUEUE_WRITES + 1):
        assert not queue.full
        queue.put(write(number))
    full = queue.full
    assert full
    begun = trio.current_time()
    await room_after_kept_places(queue)
    assert trio.current_time() - begun == 0.5
    assert not queue.full
    await queue.flushed()
    assert disk.stored == [f"sess_{number}" for number in range(QUEUE_WRITES + 1)]


async def test_large_events_fill_the_queue_sooner(
    queue: WriteQueue, autojump_clock: trio.abc.Clock
) -> None:
    """The queue is also bounded in bytes."""
    queue.put(write(0))
    await trio.sleep(0.5)
    for index in range(QUEUE_BYTES // 1_000_000 + 1):
        assert not queue.full
        queue.put(AppendJournal("J", Entry(index, index + 1, bytes(1_000_000))))
    full = queue.full
    assert full
    await room_after_kept_places(queue)
    assert not queue.full


async def test_room_is_there_again_for_all_who_wait(
    queue: WriteQueue, autojump_clock: trio.abc.Clock
) -> None:
    """Every waiting task goes on, one group later at most."""
    queue.put(write(0))
    await trio.sleep(0.5)
    for number in range(QUEUE_WRITES):
        queue.put(write(number))
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(queue.room, "alice")


async def test_a_waiter_who_gives_up_takes_nothing_with_it(
    queue: WriteQueue, disk: Disk, autojump_clock: trio.abc.Clock
) -> None:
    """A cancelled wait affects neither the write, nor its group, nor other waits."""
    queue.put(write(0))
    await trio.sleep(0.5)
    for number in range(1, QUEUE_WRITES):
        queue.put(write(number))
    group = queue.put(write(QUEUE_WRITES))
    for wait in (group.committed, queue.flushed, partial(room_after_kept_places, queue)):
        with trio.move_on_after(0.01) as gave_up:
            await wait()
        assert gave_up.cancelled_caught
    await group.committed()
    assert len(disk.stored) == QUEUE_WRITES + 1


async def test_a_cancelled_writer_calls_nothing_stored(autojump_clock: trio.abc.Clock) -> None:
    """A group that was not stored when the writer was cancelled stays unstored."""
    queue, disk = WriteQueue(), Disk()
    async with tasks_beside() as nursery:
        nursery.start_soon(queue.commit_groups, disk.apply)
        group = queue.put(write(0))
        await trio.sleep(0.5)
    assert not group.stored.is_set()
    assert disk.stored == []


async def test_a_store_that_fails_ends_its_writer(autojump_clock: trio.abc.Clock) -> None:
    """An error of the engine ends the writer, and its group is not stored."""
    queue = WriteQueue()

    async def fail(_: Sequence[Write]) -> None:
        raise OSError("no space")

    group = queue.put(write(0))
    with pytest.raises(OSError, match="no space"):
        await queue.commit_groups(fail)
    assert not group.stored.is_set()


# -- as every engine has it


async def test_reads_see_what_is_committed_and_nothing_else(store: Store, feeder: Feeder) -> None:
    """A write can be read after its commit and not before."""
    group = feeder.session()
    assert not group.stored.is_set()
    await group.committed()
    assert await store.session("S") is not None


async def test_writes_of_many_tasks_keep_the_order_of_their_puts(
    store: Store, feeder: Feeder
) -> None:
    """The journal has the entries of many tasks in the order of their puts."""
    feeder.job()

    async def emit() -> None:
        for _ in range(50):
            feeder.emit()
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(emit)
    await store.flushed()
    owed = await store.owed({"J": 0}, 1_000, 1_000_000)
    assert [entry.index for _, entry in owed] == list(range(500))


async def test_reading_is_a_checkpoint(store: Store, feeder: Feeder) -> None:
    """Every read is a checkpoint, in memory, too."""
    await feeder.session().committed()
    await feeder.job().committed()
    reads = [
        lambda: store.session("S"),
        lambda: store.session_of_token(b"token"),
        lambda: store.job("J"),
        lambda: store.key("alice", "k", 0.0),
        lambda: store.owed({"J": 0}, 1, 1),
        lambda: store.covers("S", 0),
        lambda: store.replay("S", 0, 0, 1).next(1, 1),
    ]
    for read in reads:
        with trio.CancelScope() as scope:
            scope.cancel()
            await read()
        assert scope.cancelled_caught
