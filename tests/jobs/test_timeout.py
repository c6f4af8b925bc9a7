"""`max_runtime_sec`, and several ends of a job at the same time (§7.3)."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import JobContext, JobError, Limits, Runtime
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json
from tests.stage import make_runtime, simple_agents, stubborn_agents

ENDS = {
    ("job.result", None, "success"),
    ("job.error", "INTERNAL_ERROR", "error"),
    ("job.error", "CANCELLED", "cancelled"),
    ("job.error", "TIMEOUT", "timed_out"),
}
"""The combinations of type, code and status that a terminal may have."""


@pytest.mark.spec("12-4", "7.3-1")
async def test_a_job_ends_when_its_time_is_over(peer: Peer, autojump_clock: MockClock) -> None:
    """A job times out to the second with a retryable TIMEOUT, and nothing follows."""
    begun = trio.current_time()
    job = await peer.submit("sleeper", max_runtime_sec=7)
    end = await peer.until_terminal(job["job_id"])
    assert trio.current_time() - begun == pytest.approx(7, abs=0.01)
    assert end["type"] == "job.error"
    assert end["payload"]["code"] == "TIMEOUT"
    assert end["payload"]["final_status"] == "timed_out"
    assert end["payload"]["retryable"] is True
    assert "7 s" in end["payload"]["message"]
    assert [frame["type"] for frame in peer.seen if frame["type"] != "job.accepted"] == []


@pytest.mark.parametrize("limit", [None, 2**62])
async def test_without_a_bound_that_matters_a_job_goes_on(
    runtime: Runtime, peer: Peer, limit: int | None, autojump_clock: MockClock
) -> None:
    """A job without `max_runtime_sec`, or with a very long one, is not ended."""

    @runtime.agent("slow")
    async def slow(_job: JobContext) -> Json:
        await trio.sleep(10_000)
        return "done"

    peer.patience = 20_000
    job = await peer.submit("slow", max_runtime_sec=limit)
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["result"] == "done"


async def test_the_deadline_is_the_agents_to_see(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """`deadline` is on Trio's clock, and None without `max_runtime_sec`."""

    @runtime.agent("looking")
    async def looking(job: JobContext) -> Json:
        return None if job.deadline is None else job.deadline - trio.current_time()

    for limit in (None, 30):
        job = await peer.submit("looking", max_runtime_sec=limit)
        result = (await peer.until_terminal(job["job_id"]))["payload"]["result"]
        assert result == (None if limit is None else pytest.approx(30, abs=0.01))


async def test_an_agent_that_shields_itself_times_out_at_the_end_of_the_grace(
    autojump_clock: MockClock,
) -> None:
    """A shielded agent is heard until the grace ends, and not after the terminal."""
    async with (
        make_runtime(
            simple_agents, stubborn_agents, limits=Limits(cancel_grace_seconds=2)
        ) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        begun = trio.current_time()
        job = await peer.submit("stubborn", 10, max_runtime_sec=3)
        end = await peer.until_terminal(job["job_id"])
        assert trio.current_time() - begun == pytest.approx(5, abs=0.01)
        assert end["payload"]["code"] == "TIMEOUT"
        assert 4 <= len(peer.recorder.events(job["job_id"])) <= 5
        with trio.move_on_after(20):
            frame = await peer.receive()
            pytest.fail(f"after the end: {frame}")


async def test_a_timeout_within_the_grace_of_a_cancel_changes_nothing(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A timeout during the grace of a cancel leaves the job cancelled."""
    job = await peer.submit("stubborn", 10, max_runtime_sec=3)
    await trio.sleep(2.5)
    await peer.send("job.cancel", {"job_id": job["job_id"]})
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["code"] == "CANCELLED"


async def test_a_cancel_within_the_grace_of_a_timeout_is_too_late(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A cancel during the grace of a timeout is refused with that status."""
    job = await peer.submit("stubborn", 10, max_runtime_sec=3)
    await trio.sleep(4)
    request = await peer.send("job.cancel", {"job_id": job["job_id"]})
    refusal = await peer.expect("session.error", request_id=request)
    assert refusal["payload"]["code"] == "INVALID_REQUEST"
    assert "timed_out" in refusal["payload"]["message"]
    end = await peer.until_terminal(job["job_id"])
    assert end["payload"]["code"] == "TIMEOUT"


@pytest.mark.logs_error("agent=racer")
@pytest.mark.spec("7.3-1", "7.4-3", "12-4", "1.0/7.3-1")
async def test_a_thousand_races_have_one_winner_each(autojump_clock: MockClock) -> None:
    """Return, failure, cancel and timeout at once lead to one consistent terminal."""
    async with (
        make_runtime(limits=Limits(jobs_per_principal=1000)) as runtime,
        open_peer(runtime) as peer,
    ):

        @runtime.agent("racer")
        async def racer(job: JobContext) -> Json:
            await job.log("off")
            await trio.sleep(1 + job.input["off"])
            await job.log("at the line")
            if job.input["fails"]:
                raise RuntimeError("stumbled")
            return "finished"

        await peer.hello()
        ends: Counter[tuple[str, str | None, str]] = Counter()
        for lap in range(20):
            offsets = [(number - 25) / 25_000 for number in range(50)]
            for offset in offsets:
                job = {"off": offset, "fails": lap % 4 == 3}
                fields = {"agent": "racer", "input": job}
                await peer.send("job.submit", fields | ({"max_runtime_sec": 1} if lap % 2 else {}))
            accepted = [await peer.expect("job.accepted") for _ in offsets]
            async with trio.open_nursery() as nursery:
                for number, frame in enumerate(accepted):
                    if lap % 3 != 2:
                        nursery.start_soon(_cancel_at, peer, frame["job_id"], number)
                for frame in accepted:
                    end = await peer.until_terminal(frame["job_id"])
                    payload = end["payload"]
                    ends[end["type"], payload.get("code"), payload["final_status"]] += 1
            await trio.sleep(1)
        await peer.submit("echo")
        assert ends.total() == 1000
        assert set(ends) == ENDS


async def _cancel_at(peer: Peer, job_id: str, number: int) -> None:
    await trio.sleep(0.99 + (number % 7 - 3) / 3_000 + 0.01)
    await peer.send("job.cancel", {"job_id": job_id})


@pytest.mark.parametrize("gap", [0, 1, 2, 3, 5, 8])
async def test_ends_within_a_few_steps_of_the_scheduler(
    runtime: Runtime, peer: Peer, gap: int, autojump_clock: MockClock
) -> None:
    """However agent and cancel interleave, acknowledgement and terminal agree."""

    @runtime.agent("stepping")
    async def stepping(job: JobContext) -> Json:
        for _ in range(job.input):
            await trio.lowlevel.checkpoint()
        if job.input % 2:
            raise JobError("odd")
        return "even"

    for steps in range(40):
        await peer.send("job.submit", {"agent": "stepping", "input": steps})
        job_id = (await peer.expect("job.accepted"))["job_id"]
        for _ in range(gap):
            await trio.lowlevel.checkpoint()
        peer.seen.clear()
        request = await peer.send("job.cancel", {"job_id": job_id})
        end = await peer.until_terminal(job_id)
        acknowledged = any(frame["type"] == "job.cancelled" for frame in peer.seen)
        assert acknowledged == (end["payload"]["final_status"] == "cancelled")
        if not acknowledged:
            refusals = [frame for frame in peer.seen if frame["type"] == "session.error"]
            refusal = refusals[0] if refusals else await peer.expect("session.error")
            assert refusal["payload"]["request_id"] == request
