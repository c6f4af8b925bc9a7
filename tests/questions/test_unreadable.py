"""A job whose memos cannot be read at a start waits alone, and ends alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import InternalError
from arcp_trio.store.errors import Fenced, StoreError
from arcp_trio.store.memos import Memo
from arcp_trio.store.records import JobRow
from arcp_trio.testing import open_peer
from arcp_trio.wire.features import CLIENT_FEATURES
from tests.durability.stores import copy_into
from tests.durable.stage import DurableStore
from tests.questions.lives import begun, history, life, waiting
from tests.questions.support import answer, next_question


class UnreadableStore(DurableStore):
    """A store that cannot read what some jobs remember, or nothing of these jobs, until a time."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: set[str] = set()
        self.rows = True
        """Whether their rows can be read."""
        self.until = math.inf
        self.gone = False
        """Whether the node is gone."""
        self.error: Exception = StoreError("input/output error")

    def _try(self, job_id: str) -> None:
        if job_id in self.unreadable and trio.current_time() < self.until:
            raise self.error

    async def memos(self, job_id: str) -> Sequence[Memo]:
        """Return what a job remembers, unless it cannot be read."""
        self._try(job_id)
        return await super().memos(job_id)

    async def job(self, job_id: str) -> JobRow | None:
        """Return a job, unless it cannot be read."""
        if not self.rows:
            self._try(job_id)
        if self.gone and job_id in self.unreadable:
            raise Fenced("gone")
        return await super().job(job_id)


async def two_that_ask() -> tuple[str, str, UnreadableStore]:
    """Return two jobs that ask, and what is stored of them when their runtime is killed."""
    store = DurableStore()
    async with life(store) as (_, peer):
        bad = await begun(peer, {"prompt": "a?"})
        await next_question(peer, bad)
        good = await begun(peer, {"prompt": "b?"})
        await next_question(peer, good)
        return bad, good, copy_into(UnreadableStore(), store)


@pytest.mark.logs_error(r"(?s)memos cannot be read: the job ends.*input/output error")
async def test_one_job_that_cannot_be_read_ends_alone(autojump_clock: MockClock) -> None:
    """The others are listed and go on at once; it ends by itself, and the log says why."""
    bad, good, store = await two_that_ask()
    store.unreadable = {bad}
    async with life(store) as (runtime, peer):
        with trio.fail_after(1):
            assert await waiting(peer, bad) == []
            (question,) = await waiting(peer, good)
            await answer(peer, question, "yes")
            assert (await history(runtime, good))[-1] == "['yes']"
            with pytest.raises(InternalError, match="store cannot be used") as refused:
                await answer(peer, {**question, "job_id": bad}, "yes")
        assert refused.value.retryable
        assert (await history(runtime, bad))[-1] == "INTERNAL_ERROR"


@pytest.mark.parametrize("rows", [True, False], ids=["memos", "everything"])
async def test_a_disk_that_comes_back(autojump_clock: MockClock, *, rows: bool) -> None:
    """A job goes on once it can be read, however late that is if nothing of it could be read."""
    bad, _, store = await two_that_ask()
    store.unreadable, store.rows = {bad}, rows
    seconds = 30 if rows else 3_000
    store.until = trio.current_time() + seconds
    async with life(store) as (runtime, _):
        await trio.sleep(seconds + 100)
        async with open_peer(runtime) as peer:
            await peer.hello(features=tuple(CLIENT_FEATURES))
            (question,) = await waiting(peer, bad)
            await answer(peer, question, "yes")
        assert (await history(runtime, bad))[-1] == "['yes']"


@pytest.mark.parametrize("error", [Fenced("gone"), StoreError("away")], ids=["gone", "away"])
async def test_a_node_that_is_gone_ends_no_job(autojump_clock: MockClock, error: Exception) -> None:
    """A job whose memos or row cannot be read because the node is gone has no end there."""
    bad, good, store = await two_that_ask()
    store.unreadable, store.error, store.gone = {bad}, error, True
    async with life(store) as (runtime, peer):
        (question,) = await waiting(peer, good)
        await answer(peer, question, "yes")
        assert (await history(runtime, good))[-1] == "['yes']"
        await trio.sleep(100)
        async with open_peer(runtime) as other:
            await other.hello(features=tuple(CLIENT_FEATURES))
            listing = await other.answer(
                "session.jobs",
                await other.send("session.list_jobs", {"filter": {"status": ["running"]}}),
            )
        assert [job["job_id"] for job in listing["jobs"]] == [bad]
