"""A job that goes from node to node while it is watched: its watchers notice nothing."""

from __future__ import annotations

import pytest
import trio

from arcp_trio import Agents, JobContext, Json, Limits
from arcp_trio.store.postgres.administering import make_schema
from arcp_trio.testing import Peer, WireRecorder
from arcp_trio.testing.frames import Frame
from tests.cluster.side_by_side import clients_of, runtime_over
from tests.cluster.tellers import SECONDS, counted, quiet, subscribed
from tests.metrics import scrape
from tests.reading import lines, until_end

pytestmark = [pytest.mark.postgres, pytest.mark.real_tcp]

STEPS, HALF = 40, 20
LIMITS = Limits(cancel_grace_seconds=1)


def walkers(stop: int | None = None) -> Agents:
    """Return an agent that logs the number of each step, and stands still after `stop` steps."""
    agents = Agents()

    @agents.agent("walker", durable=True)
    async def walker(job: JobContext) -> Json:
        for number in range(STEPS):
            if number == stop:
                await trio.sleep_forever()
            await job.step("walk", walk, number)
            await job.log(str(number))
        return STEPS

    return agents


async def walk(number: int) -> int:
    """Return the number."""
    return number


async def test_a_job_that_its_watchers_node_goes_on_with(database: str) -> None:
    """A session at the job's next node and one at a third have every event once, in order."""
    recorder = WireRecorder()
    await trio.to_thread.run_sync(make_schema, database, None)
    (first, a), (second, b), (third, c) = (
        runtime_over(database, "a", walkers(HALF), limits=LIMITS),
        runtime_over(database, "b", walkers(), limits=LIMITS),
        runtime_over(database, "c", limits=LIMITS),
    )
    with trio.fail_after(SECONDS):
        async with (
            second,
            clients_of(second, b, recorder) as next_node,
            third,
            clients_of(third, c, recorder) as bystander,
        ):
            async with first, clients_of(first, a, recorder) as leaver:
                job_id = (await (await quiet(leaver)).submit("walker"))["job_id"]
                watchers = [await quiet(next_node), await quiet(bystander)]
                for watcher in watchers:
                    await subscribed(watcher, job_id, history=True)
                heard = [await up_to_log(watcher, HALF - 1) for watcher in watchers]
            for watcher, before in zip(watchers, heard, strict=True):
                frames = [*before, *await until_end(watcher, job_id)]
                assert lines(filter(is_log, frames)) == counted(STEPS)
                assert frames[-1]["payload"]["result"] == STEPS
            assert scrape(second)("events_total") > STEPS - HALF, "it did not go on there"
            assert scrape(second)("followed_jobs") == scrape(third)("followed_jobs") == 0


def is_log(frame: Frame) -> bool:
    """Return whether a frame is a line that a job has logged."""
    return frame["type"] == "job.event" and bool(frame["payload"]["kind"] == "log")


async def up_to_log(peer: Peer, number: int) -> list[Frame]:
    """Receive up to the line with this number, and return all of it."""
    frames = [await peer.receive()]
    while not (is_log(frames[-1]) and lines(frames[-1:]) == [str(number)]):
        frames.append(await peer.receive())
    return frames
