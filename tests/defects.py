"""Variants of the runtime with a defect, each of which a check must find.

A test puts one in with `pytest.MonkeyPatch` and shows that the check fails then.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import trio

from arcp_trio import MemoryStore
from arcp_trio.authority.budget import Budget
from arcp_trio.runtime.job import outcome
from arcp_trio.runtime.job.children import Children
from arcp_trio.runtime.job.journal import Journal
from arcp_trio.runtime.session.attachment import Attachment
from arcp_trio.runtime.session.batch import Batch
from arcp_trio.runtime.session.observing import Observing
from arcp_trio.runtime.session.outbox import Item, Outbox, Promise
from arcp_trio.runtime.session.publisher import Publisher
from arcp_trio.runtime.session.record import Record
from arcp_trio.runtime.session.scribe import Scribe
from arcp_trio.runtime.session.session import Session
from arcp_trio.runtime.session.watch import Watch
from arcp_trio.store.interface import Replay
from arcp_trio.store.postgres import (
    _adopting,
    _cleaning,
    _retention,
    _writing,
    _writing_sessions,
)
from arcp_trio.store.postgres._writing import Committed, GroupPipeline
from arcp_trio.store.queue import Group
from arcp_trio.store.records import Entry, Owed
from arcp_trio.store.writes import Write

# -- connections


def end_jobs_with_their_connection(patch: pytest.MonkeyPatch) -> None:
    """Have a lost connection end the jobs of its session."""
    detach = Session.detach

    def detach_and_end(session: Session, attachment: Attachment) -> None:
        for watch in session.watches.values():
            journal = watch.journal
            if isinstance(journal, Journal) and watch.job_id in journal._jobs.live:
                journal._jobs.live[watch.job_id].end(outcome.cancelled("the connection was lost"))
        detach(session, attachment)

    patch.setattr(Session, "detach", detach_and_end)


def forget_the_token_before(patch: pytest.MonkeyPatch) -> None:
    """Forget a resume token as soon as there is a new one, whether or not that one arrived."""
    rotate = Record.rotate

    def rotate_and_forget(self: Record, **values: Any) -> Group:
        group = rotate(self, **values)
        self._spare_digests = ()
        return group

    patch.setattr(Record, "rotate", rotate_and_forget)


# -- numbers


def replay_from_too_late(patch: pytest.MonkeyPatch) -> None:
    """Begin a replay one number too late."""
    replay = MemoryStore.replay

    def late(self: MemoryStore, session_id: str, after: int, top: int, rows: int) -> Replay:
        return replay(self, session_id, after + 1, top, rows)

    patch.setattr(MemoryStore, "replay", late)


def forget_overflow(patch: pytest.MonkeyPatch) -> None:
    """Drop a hint that finds the outbox full without noting that the session is behind."""
    hint = Outbox.hint

    def forgetful(outbox: Outbox, watch: Watch, entry: Entry) -> None:
        behind = outbox.behind
        hint(outbox, watch, entry)
        outbox.behind = behind

    patch.setattr(Outbox, "hint", forgetful)


def catch_up_job_by_job(patch: pytest.MonkeyPatch) -> None:
    """Read one job after the other when a session catches up."""
    owed = MemoryStore.owed

    async def by_job(
        self: MemoryStore, cursors: dict[str, int], entries: int, size: int
    ) -> Sequence[Owed]:
        found = await owed(self, cursors, entries, size)
        return sorted(found, key=lambda one: (one[0], one[1].index))

    patch.setattr(MemoryStore, "owed", by_job)


def number_hidden_events(patch: pytest.MonkeyPatch) -> None:
    """Give a number to an event whose feature the session did not negotiate."""
    number = Batch.number

    def count(self: Batch, watch: Watch, entry: Entry) -> None:
        number(self, watch, entry)
        if entry.feature is not None and entry.feature not in self._session.features:
            self._record.take_numbers(1)

    patch.setattr(Batch, "number", count)


def publish_in_other_tasks(patch: pytest.MonkeyPatch) -> None:
    """Let other tasks run between taking numbers and queueing the frames."""
    publish, turn = Publisher.publish, itertools.cycle((0, 20))

    async def later(publisher: Publisher, batch: Batch, told: Sequence[Item], ticks: int) -> None:
        for _ in range(ticks):
            await trio.lowlevel.checkpoint()
        publish(publisher, batch, told)

    def aside(publisher: Publisher, batch: Batch, told: Sequence[Item] = ()) -> None:
        trio.lowlevel.spawn_system_task(later, publisher, batch, told, next(turn))

    patch.setattr(Publisher, "publish", aside)


def publish_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """Send frames without waiting until they are stored."""

    def at_once(self: Publisher, batch: Batch, told: Sequence[Item] = ()) -> None:
        session = self._session
        if batch.logged:
            self._store.put(batch.write())
        if session.outbox.unsent is not None:
            session.outbox.unsent.extend(batch.series)
        session.outbox.dealt_with(told)
        session.release(len(told))

    patch.setattr(Publisher, "publish", at_once)


# -- subscriptions


def repeat_the_boundary(patch: pytest.MonkeyPatch) -> None:
    """Begin a history one event too early, with the one that `from_event_seq` names."""
    index_after = MemoryStore.index_after

    async def inclusive(self: MemoryStore, job_id: str, seq: int) -> int | None:
        index = await index_after(self, job_id, seq)
        return index and index - 1

    patch.setattr(MemoryStore, "index_after", inclusive)


def lose_the_boundary(patch: pytest.MonkeyPatch) -> None:
    """Lose what is emitted between the answer to a subscription and the first hint."""
    promise = Batch.promise

    def late(self: Batch, item: Promise) -> None:
        promise(self, item)
        if item.watch is not None and item.watch.observer and item.watch.journal is not None:
            item.watch.cursor = item.watch.journal.length

    patch.setattr(Batch, "promise", late)


def feed_twice(patch: pytest.MonkeyPatch) -> None:
    """Send everything twice to a client that observes its own job."""
    begin = Observing._begin

    def begin_anyway(self: Observing, *args: object) -> None:
        with pytest.MonkeyPatch.context() as there:
            there.setattr(self, "_follows", lambda *_, **__: False)
            there.setattr(self, "_submitted", lambda *_: False)
            begin(self, *args)  # type: ignore[arg-type]

    patch.setattr(Observing, "_begin", begin_anyway)


# -- trees of jobs


def read_past_a_delegation(patch: pytest.MonkeyPatch) -> None:
    """Number what a parent emitted after a delegation before looking at the child's events."""

    def all_of_it(self: Scribe, owed: Sequence[Owed]) -> Batch:
        batch = Batch(self._session, self._jobs)
        for job_id, entry in owed:
            batch._number_if_owed(self._session.watches[job_id], entry)
        return batch

    patch.setattr(Scribe, "_owed_batch", all_of_it)


def spend_alone(patch: pytest.MonkeyPatch) -> None:
    """Count what a job spends in its own budget only."""

    def only_this(self: Budget) -> Iterator[Budget]:
        yield self

    patch.setattr(Budget, "_line", only_this)


def end_without_children(patch: pytest.MonkeyPatch) -> None:
    """End a job without its children."""

    def let_them(_: Children, __: float) -> None:
        """Have the children go on."""

    async def at_once(_: Children) -> None:
        """Wait for nothing."""

    patch.setattr(Children, "end_all", let_them)
    patch.setattr(Children, "none_left", at_once)


# -- nodes


def write_without_fence(patch: pytest.MonkeyPatch) -> None:
    """Store groups whether or not the node is fenced."""
    patch.setattr(_writing, "_FENCE", "SELECT %b::bigint, %b::bigint, %b::bigint")


def look_for_the_fence_before(patch: pytest.MonkeyPatch) -> None:
    """Look whether the node is fenced before the transaction of a group, and not in it."""
    store, fence = GroupPipeline.store, _writing._FENCE

    def look_first(self: GroupPipeline, writes: Sequence[Write], number: int) -> Committed:
        self._db.execute(fence, (self._me, number, 0))
        return store(self, writes, number)

    write_without_fence(patch)
    patch.setattr(GroupPipeline, "store", look_first)


def write_sessions_of_other_nodes(patch: pytest.MonkeyPatch) -> None:
    """Write what a session has become, whichever node has it by now."""
    for name, statement in list(vars(_writing_sessions).items()):
        if isinstance(statement, str):
            unguarded = statement.replace(" AND s.node = %(me)b", "")
            unguarded = unguarded.replace(" AND node = %(me)b", "")
            patch.setattr(_writing_sessions, name, unguarded)


def adopt_without_a_lock(patch: pytest.MonkeyPatch) -> None:
    """Let two nodes that adopt a third one at once both find that it is there."""
    patch.setattr(_adopting, "_STILL_THERE", _adopting._STILL_THERE.replace(" FOR UPDATE", ""))


def sweep_beside_others(patch: pytest.MonkeyPatch) -> None:
    """Clean up, and give up what is too much, whether or not another node is at it."""
    for module in (_cleaning, _retention):
        patch.setattr(module, "alone", lambda *_: True)
