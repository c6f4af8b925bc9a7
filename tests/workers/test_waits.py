"""Jobs in worker processes that wait for much at the same time. In real time."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from arcp_trio import Limits
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json
from tests.workers.support import GRACE, end_of, open_runtime, open_with_workers, run
from tests.workers.waiting_agents import MANY

LEASE: Json = {"agent.delegate": ["*"]}


async def test_a_wait_that_is_given_up_at_once_uses_no_allowance(peer: Peer) -> None:
    """What an agent no longer waits for is given up in the runtime, too."""
    with trio.fail_after(20):
        end = await run(peer, "impatient", lease_request=LEASE)
    assert end.get("result") == "heard", end


async def test_nothing_is_kept_of_calls_that_are_too_large(peer: Peer) -> None:
    """A call that is refused for its size is not among those that the agent waits for."""
    with trio.fail_after(20):
        assert (await run(peer, "too-large"))["result"] == 0


@pytest.mark.parametrize("agent", ["crowd-on-trio", "crowd-on-asyncio"])
async def test_a_job_with_many_waits_goes_on(peer: Peer, agent: str, tmp_path: Path) -> None:
    """A job that waits for more than fits logs meanwhile, gives its waits up, and waits anew."""
    input_ = {"seconds": 0.5, "clean": str(tmp_path / "clean")}
    with trio.fail_after(20):
        end = await run(peer, agent, input_, lease_request=LEASE)
    assert end.get("result") == "heard", end


@pytest.mark.parametrize("agent", ["crowd-on-trio", "crowd-on-asyncio", "crowd-of-threads"])
async def test_a_cancel_reaches_a_job_with_many_waits(agent: str, tmp_path: Path) -> None:
    """The agent cleans up and ends long before its grace is over, and the next job begins."""
    input_ = {"seconds": 60, "clean": str(tmp_path / "clean")}
    async with (
        open_runtime(count=1, limits=Limits(cancel_grace_seconds=20)) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        job = await peer.submit(agent, input_, lease_request=LEASE)
        await peer.expect("job.event", kind="log")
        await peer.send("job.cancel", {"job_id": job["job_id"]})
        assert (await end_of(peer, job))["code"] == "CANCELLED"
        with trio.fail_after(10):
            assert (await run(peer, "about"))["final_status"] == "success"
        assert (tmp_path / "clean").exists()


async def test_other_jobs_go_on_beside_a_job_with_many_waits(peer: Peer, tmp_path: Path) -> None:
    """A job in another worker is not held up."""
    input_ = {"seconds": 60, "clean": str(tmp_path / "clean")}
    job = await peer.submit("crowd-on-trio", input_, lease_request=LEASE)
    with trio.fail_after(20):
        for _ in range(3):
            assert (await run(peer, "about"))["final_status"] == "success"
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    assert (await end_of(peer, job))["code"] == "CANCELLED"


@pytest.mark.logs_error("worker lost")
async def test_a_worker_that_takes_more_than_its_allowance_is_ended(peer: Peer) -> None:
    """A worker with too many calls is ended at once, with its job alone."""
    with trio.fail_after(20):
        end = await run(peer, "greedy", lease_request=LEASE)
        assert end.get("message") == "the agent's process ended", end
        for _ in range(3):
            assert (await run(peer, "about"))["final_status"] == "success"


@pytest.mark.parametrize("agent", ["hasty-on-trio", "hasty-on-asyncio"])
async def test_a_worker_may_use_all_its_allowance(peer: Peer, agent: str) -> None:
    """A worker that begins a call as soon as it may keeps to the allowance of its job."""
    with trio.fail_after(40):
        assert (await run(peer, agent)).get("result") == "heard"


async def test_waits_past_the_bound_have_their_turn(peer: Peer) -> None:
    """Each of many waits has its result, those past the allowance as well."""
    with trio.fail_after(30):
        end = await run(peer, "family", lease_request=LEASE)
    assert end.get("result") == list(range(MANY))


async def test_a_large_call_is_not_held_up_by_a_small_wait(peer: Peer) -> None:
    """A call of the most bytes that one may have is carried out while the job waits for a child."""
    with trio.fail_after(20):
        end = await run(peer, "far-reaching", lease_request=LEASE)
    assert end.get("result") == "answered", end


async def test_a_job_ends_while_nobody_reads_its_events() -> None:
    """An agent may give up an event that waits for a slow reader, and return."""
    limits = Limits(cancel_grace_seconds=GRACE, journal_bytes=1_000_000)
    async with (
        open_runtime(count=1, limits=limits) as runtime,
        open_peer(runtime) as silent,
        open_peer(runtime) as peer,
    ):
        await silent.hello()
        await peer.hello()
        await silent.submit("unheard")
        with trio.fail_after(20):
            assert (await run(peer, "about"))["final_status"] == "success"


async def test_last_words_are_not_lost(peer: Peer) -> None:
    """Events that an agent does not wait for come before its job's end, and in order."""
    for _ in range(5):
        job = await peer.submit("last-words")
        await end_of(peer, job)
        bodies = [frame["payload"]["body"] for frame in peer.recorder.events(job["job_id"])]
        assert [body["message"] for body in bodies] == [str(number) for number in range(20)]


@pytest.mark.parametrize("agent", ["unawaited-on-trio", "unawaited-on-asyncio"])
async def test_events_past_the_bound_are_not_lost(peer: Peer, agent: str) -> None:
    """Events that an agent does not wait for are all told, also those past its allowance."""
    job = await peer.submit(agent)
    await end_of(peer, job)
    bodies = [frame["payload"]["body"] for frame in peer.recorder.events(job["job_id"])]
    assert [body["message"] for body in bodies] == [str(number) for number in range(300)]


@pytest.mark.parametrize("agent", ["unawaited-on-trio", "unawaited-on-asyncio"])
async def test_nor_are_they_if_no_time_is_left_at_the_end(agent: str) -> None:
    """They are told, although the grace is over before the worker has its answers."""
    async with open_with_workers(1, Limits(cancel_grace_seconds=1e-9)) as peer:
        await test_events_past_the_bound_are_not_lost(peer, agent)


async def test_a_wait_is_given_up_while_its_answer_arrives(peer: Peer) -> None:
    """The half of an answer that was sent is followed by its other half, and then by others."""
    with trio.fail_after(20):
        end = await run(peer, "half", lease_request=LEASE)
    assert end.get("result") == "heard", end
