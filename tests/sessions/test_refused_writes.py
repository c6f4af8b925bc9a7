"""What a runtime does when its store refuses writes, as they are about what another one has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import TypeGuard

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock, wait_all_tasks_blocked

from arcp_trio.store.records import Entry, Status
from arcp_trio.store.writes import AcceptJob, FinishJob, Write
from arcp_trio.testing import Peer
from arcp_trio.wire import envelope
from arcp_trio.wire.ids import new_id
from tests.inside import live_jobs
from tests.reading import close_code, lines, up_to
from tests.sessions.support import Stage
from tests.slow_stores import PausingStore
from tests.stage import hello_payload

RIVALS_JOB = "job_01ARZ3NDEKTSV4RRFFQ69G5FAV"


class ContestedStore(PausingStore):
    """A store in which other runtimes have sessions, and are first with keys."""

    def __init__(self) -> None:
        super().__init__()
        self.elsewhere: set[str] = set()
        """The ids of sessions and jobs that are not this runtime's."""
        self.rival_is_first = False
        """Another runtime stores a job under the next key, right before this one does."""

    @property
    def may_refuse(self) -> bool:
        """Whether another runtime may be first."""
        return True

    async def _commit(  # type: ignore[override]
        self, writes: Sequence[Write]
    ) -> frozenset[str]:
        self.elsewhere |= {write.row.job_id for write in writes if self._is_late(write)}
        foreign = [write for write in writes if _about(write) & self.elsewhere]
        await super()._commit([write for write in writes if write not in foreign])
        return frozenset(set[str]().union(*map(_about, foreign)) & self.elsewhere)

    def _is_late(self, write: Write) -> TypeGuard[AcceptJob]:
        """Return whether a write accepts a job that is not to be."""
        if not isinstance(write, AcceptJob):
            return False
        if write.key is not None and self.rival_is_first:
            self.rival_is_first = False
            self._writer.apply(_as_of_rival(write))
            return True
        return write.row.session_id in self.elsewhere


def _about(write: Write) -> set[str]:
    if isinstance(write, AcceptJob):
        return {write.row.job_id}
    return {getattr(write, "session_id", ""), getattr(write, "job_id", "")}


def _as_of_rival(write: AcceptJob) -> list[Write]:
    """Return the acceptance of another job under the same key, and its end."""
    assert write.key is not None
    accepted = write.row.accepted.replace(write.row.job_id.encode(), RIVALS_JOB.encode())
    row = replace(write.row, job_id=RIVALS_JOB, session_id="sess_rival", accepted=accepted)
    key = replace(write.key, job_id=RIVALS_JOB, accepted=accepted)
    result = b'{"final_status":"success","result":1}'
    tail = envelope.tail("job.result", result, id=new_id(), job_id=RIVALS_JOB)
    end = FinishJob(RIVALS_JOB, Status.SUCCESS, 0.0, Entry(0, 1, tail, terminal=True))
    return [AcceptJob(row, key), end]


@asynccontextmanager
async def opened() -> AsyncGenerator[tuple[Stage, ContestedStore]]:
    """Run a stage over a store that other runtimes use, too."""
    store = ContestedStore()
    async with Stage.open(store) as stage:
        yield stage, store


def session_of(peer: Peer) -> str:
    """Return the id of a client's session."""
    return str(peer.resume_from()["session_id"])


async def test_numbers_that_were_refused_are_not_seen(autojump_clock: MockClock) -> None:
    """A session that another runtime has shows nothing more here: its connection ends."""
    async with opened() as (stage, store):
        peer = await stage.welcomed()
        await peer.submit("puppet")
        await stage.puppet.say("mine")
        assert lines(await up_to(peer, 1)) == ["mine"]
        store.elsewhere.add(session_of(peer))
        await stage.puppet.say("not mine", "nor this")
        assert await close_code(peer) == 1000
        assert not lines(peer.seen)


async def test_a_resume_whose_token_was_refused_fails(autojump_clock: MockClock) -> None:
    """A client that resumes here and elsewhere at once is told to try again."""
    async with opened() as (stage, store):
        peer = await stage.welcomed()
        await peer.drop()
        await wait_all_tasks_blocked()
        store.elsewhere.add(session_of(peer))
        again = await stage.connect()
        await again.send("session.hello", hello_payload() | {"resume": peer.resume_from()})
        refused = await again.expect("session.error")
        assert refused["payload"]["code"] == "INTERNAL_ERROR"
        assert await close_code(again)


async def test_a_job_of_a_session_that_is_elsewhere_does_not_begin(
    autojump_clock: MockClock,
) -> None:
    """A submit in a session that another runtime has leads to no job, and takes no room."""
    async with opened() as (stage, store):
        peer, other = await stage.welcomed(), await stage.welcomed()
        store.elsewhere.add(session_of(peer))
        await peer.send("job.submit", {"agent": "puppet"})
        await peer.send("job.submit", {"agent": "puppet", "idempotency_key": "k"})
        assert await close_code(peer) == 1000
        assert not [frame for frame in peer.seen if frame["type"] == "job.accepted"]
        await wait_all_tasks_blocked()
        assert not live_jobs(stage.runtime)
        assert not stage.puppet.runs
        job = (await other.submit("chatty", 1))["job_id"]
        await other.until_terminal(job)


async def test_a_refused_key_stands_for_the_job_of_the_other_runtime(
    autojump_clock: MockClock,
) -> None:
    """A submit whose key another runtime was first with is answered with that runtime's job."""
    async with opened() as (stage, store):
        peer = await stage.welcomed()
        store.rival_is_first = True
        accepted = await peer.submit("puppet", idempotency_key="k")
        assert accepted["job_id"] == RIVALS_JOB
        assert (await peer.until_terminal(RIVALS_JOB))["payload"]["result"] == 1
        assert not live_jobs(stage.runtime)
        assert not stage.puppet.runs


async def test_a_refused_key_that_came_with_other_parameters_is_a_duplicate(
    autojump_clock: MockClock,
) -> None:
    """The key is compared as if the other runtime's submit had come here."""
    async with opened() as (stage, store):
        peer, other = await stage.welcomed(), await stage.welcomed()
        store.rival_is_first = True
        await peer.submit("puppet", idempotency_key="k")
        await other.send("job.submit", {"agent": "chatty", "idempotency_key": "k"})
        refused = await other.expect("session.error")
        assert refused["payload"]["code"] == "DUPLICATE_KEY"


@pytest.mark.parametrize("key", [None, "k"])
async def test_a_job_that_is_to_end_before_it_is_refused_is_gone(
    key: str | None, autojump_clock: MockClock
) -> None:
    """A runtime that shuts down meanwhile does not wait for a job that was never accepted."""
    async with opened() as (stage, store):
        peer = await stage.welcomed()
        store.elsewhere.add(session_of(peer))
        store.pause()
        fields = {} if key is None else {"idempotency_key": key}
        await peer.send("job.submit", {"agent": "puppet", **fields})
        await wait_all_tasks_blocked()
        assert live_jobs(stage.runtime)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.runtime.shutdown)
            await wait_all_tasks_blocked()
            store.go_on()
        assert not live_jobs(stage.runtime)
        assert not stage.puppet.runs
