"""A connection's nursery is cancelled at each of its checkpoints: nothing is lost with it."""

from __future__ import annotations

from itertools import count

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext
from arcp_trio.testing import Peer
from arcp_trio.testing.frames import Frame
from arcp_trio.transport import TransportClosed
from tests import defects
from tests.inside import no_writes_at_once
from tests.sessions.support import Stage, open_stage

BURSTS = 6
LINES = 40
"""How many lines each burst has: more than are sent in one step, and than a pipe holds."""
SAID = [f"{number:03}" for number in range(BURSTS * LINES)]


class Cut(trio.abc.Instrument):
    """Cancels the nurseries of the first two connections, each at its nth checkpoint."""

    def __init__(self, at: int) -> None:
        self.cuts = 0
        """How many were cancelled."""
        self._at = at
        self._checkpoints: dict[trio.Nursery, int] = {}

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step of a task of a connection."""
        nursery = _nursery_of_connection(task)
        if nursery is None or (nursery not in self._checkpoints and len(self._checkpoints) == 2):
            return
        passed = self._checkpoints[nursery] = self._checkpoints.get(nursery, 0) + 1
        if passed == self._at:
            nursery.cancel_scope.cancel(reason="a test")
            self.cuts += 1


def _nursery_of_connection(task: trio.lowlevel.Task | None) -> trio.Nursery | None:
    """Return the nursery of the connection that a task is part of: the one with a heartbeat."""
    while task is not None:
        for nursery in task.child_nurseries:
            if any(child.name.startswith("heartbeat of ") for child in nursery.child_tasks):
                return nursery
        task = None if task.parent_nursery is None else task.parent_nursery.parent_task
    return None


class Follower:
    """A client that submits one job, and reads it to its end over any number of connections."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._resume: Frame | None = None
        self.job_id = ""

    async def follow(self) -> None:
        """Return once the job's end has come."""
        while True:
            peer = await self._stage.connect()
            try:
                return await self._converse(peer)
            except TransportClosed:
                if peer.session_id is not None:
                    self._resume = peer.resume_from()

    async def _converse(self, peer: Peer) -> None:
        await peer.hello(resume=self._resume)
        await peer.send("session.ping", {"nonce": "n"})
        if not self.job_id:
            accepted = await peer.submit("talker", idempotency_key="talk")
            self.job_id = accepted["job_id"]
        await peer.send("session.list_jobs", {})
        for seconds in (0.2, 0.2, 0.2, 2.6, 0.2, 0.2, 6):
            # At first the client keeps up with the job; then writes have to wait, at last for
            # longer than the job talks, and than a heartbeat takes.
            await trio.sleep(seconds)
            for _ in range(20):
                if peer.recorder.terminal(self.job_id) is not None:
                    return
                await peer.receive()
            seq = peer.resume_from()["last_event_seq"]
            await peer.send("session.ack", {"last_processed_seq": seq})
        await peer.until_terminal(self.job_id)


async def _cut_at(at: int) -> int:
    """Run a job whose connections are cut at a checkpoint; return how many were cut."""
    cut, runs = Cut(at), 0
    async with open_stage(heartbeat_seconds=5) as stage:

        @stage.runtime.agent("talker")
        async def talker(job: JobContext) -> str:
            nonlocal runs
            runs += 1
            for number, line in enumerate(SAID):
                await job.log(line.ljust(1_000))
                if number % LINES == LINES - 1:
                    await trio.sleep(1)
            return "talked"

        client = Follower(stage)
        trio.lowlevel.add_instrument(cut)
        try:
            with trio.fail_after(1_000):
                await client.follow()
        finally:
            trio.lowlevel.remove_instrument(cut)
        events = stage.recorder.events(client.job_id)
        assert [event["payload"]["body"]["message"].rstrip() for event in events] == SAID
        end = stage.recorder.terminal(client.job_id)
        assert end is not None
        assert end["payload"]["result"] == "talked"
        assert end["event_seq"] == len(SAID) + 1
        assert runs == 1
    return cut.cuts


async def _cut_everywhere() -> int:
    """Cut at the first checkpoint, and so on; return how many there were."""
    for at in count(1):
        if not await _cut_at(at):
            return at - 1
    raise AssertionError("it counts without end")


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "in tasks"])
async def test_a_connection_that_is_cut_at_any_checkpoint_loses_and_doubles_nothing(
    at_once: bool,  # noqa: FBT001 - pytest passes it by name
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever a connection is cancelled, its client resumes and has everything once."""
    if not at_once:
        no_writes_at_once(monkeypatch)
    assert await _cut_everywhere() > 30


async def test_a_resume_that_leaves_something_out_is_found(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check fails if one number is missing after a cut."""
    defects.replay_from_too_late(monkeypatch)
    with pytest.raises(AssertionError, match=r"is due|before its job\.accepted"):
        await _cut_everywhere()
