"""An event and its numbers are stored together, and sent without a turn of another task."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, MemoryStore
from arcp_trio.runtime.session.batch import Batch
from arcp_trio.store.writes import AppendJournal, AppendLog, Write
from arcp_trio.testing import open_peer
from arcp_trio.testing.pair import open_peers
from tests.ordering.agents import agents
from tests.stage import make_runtime


class _Noting(MemoryStore):
    """A store that notes what it is given to store together."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[Sequence[Write]] = []

    async def _commit(self, writes: Sequence[Write]) -> None:
        self.groups.append(list(writes))
        await super()._commit(writes)


async def test_events_and_all_their_numbers_are_in_one_group(autojump_clock: MockClock) -> None:
    """What twenty jobs emit in one instant, and its numbers in twenty sessions, is one group."""
    store, go = _Noting(), trio.Event()
    async with make_runtime(agents, store=store) as runtime, open_peers(runtime) as peers:

        @runtime.agent("waiting")
        async def waiting(job: JobContext) -> None:
            await go.wait()
            await job.log("now")
            await trio.sleep(1)

        everyone = [await peers.connect() for _ in range(20)]
        for peer in everyone:
            await peer.hello()
            await peer.submit("waiting")
        await trio.sleep(1)
        del store.groups[:]
        go.set()
        for peer in everyone:
            await peer.expect("job.event")
        kinds = [[type(write) for write in group] for group in store.groups]
        assert len(kinds) == 1
        assert kinds[0].count(AppendJournal) == 20
        assert kinds[0].count(AppendLog) == 20


@pytest.mark.parametrize("key", [None, "k"])
async def test_an_acceptance_and_its_promise_are_in_one_group(
    key: str | None, autojump_clock: MockClock
) -> None:
    """A submit takes one group to be answered, and another one for its job to begin and end."""
    store = _Noting()
    async with make_runtime(agents, store=store) as runtime, open_peer(runtime) as peer:

        @runtime.agent("quick")
        async def quick(job: JobContext) -> None:
            await job.log("now")

        await peer.hello()
        await trio.sleep(1)
        del store.groups[:]
        job = await peer.submit("quick", idempotency_key=key)
        await peer.until_terminal(job["job_id"])
        assert [[type(write).__name__ for write in group] for group in store.groups] == [
            ["AcceptJob", "AppendLog", *(["AddSubmitter"] if key else [])],
            ["StartJob", "AppendJournal", "FinishJob", "AppendLog"],
        ]


@pytest.mark.logs_error("session failed")
async def test_a_session_that_cannot_number_fails_alone(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect in the numbering of one session ends neither the store nor another session."""
    number_events = Batch.number_events

    def fail_sometimes(self: Batch, watch: object, tails: Sequence[bytes]) -> None:
        if any(b"poison" in tail for tail in tails):
            raise RuntimeError("a defect")
        number_events(self, watch, tails)  # type: ignore[arg-type]

    monkeypatch.setattr(Batch, "number_events", fail_sometimes)
    async with make_runtime(agents) as runtime, open_peers(runtime) as peers:

        @runtime.agent("saying")
        async def saying(job: JobContext) -> None:
            await job.log(str(job.input))
            await trio.sleep(1)

        ill, well = await peers.connect(), await peers.connect()
        for peer, word in ((ill, "poison"), (well, "water")):
            await peer.hello()
            await peer.submit("saying", word)
        await ill.expect("session.error", code="INTERNAL_ERROR")
        await well.expect("job.event")
        await well.expect("job.result")
