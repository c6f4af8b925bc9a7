"""What a job may still do once its lease has expired, and how its tree ends (§9.5)."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import (
    ArcpError,
    JobContext,
    LeaseExpired,
    Limits,
    Runtime,
)
from arcp_trio.log_lines import fields_of
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json
from arcp_trio.wire.timestamps import rfc3339
from tests.jobs import doer
from tests.jobs.doer import SteppedClock, do
from tests.jobs.expiring import EXPIRED, GRACE, ended_by_expiry, until
from tests.reading import until_end
from tests.slow_stores import SlowStore
from tests.stage import make_runtime


@pytest.mark.spec("9.5-6", "9.5-7")
async def test_an_agent_may_clean_up_and_no_more(
    peer: Peer, runtime: Runtime, clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """After its lease ended an agent may emit within the grace, but cannot succeed."""

    @runtime.agent("tidy")
    async def tidy(job: JobContext) -> Json:
        with trio.CancelScope(shield=True):
            await trio.sleep(11)
            for _ in range(3):
                with pytest.raises(LeaseExpired):
                    job.authorize("tool.call", "t")
            with pytest.raises(LeaseExpired):
                await job.delegate("doer", [])
            await trio.sleep(20)
            await job.metric("cost.x", 0.4, unit="USD")
            await job.log("tidied up")
        return "success"

    accepted = await peer.submit("tidy", **until(clock.after(10)))
    end, bodies = await doer.whole(peer, accepted["job_id"])
    assert ended_by_expiry(end)
    assert bodies[-1]["message"] == "tidied up"
    assert [body["value"] for body in bodies if "value" in body] == [0.4, 0.6]


@pytest.mark.spec("9.5-6")
async def test_an_agent_that_does_not_end_is_cut_off(
    peer: Peer, runtime: Runtime, clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """An agent gets the usual grace from the end of its lease on."""

    @runtime.agent("lingering")
    async def lingering(job: JobContext) -> Json:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    began = trio.current_time()
    accepted = await peer.submit("lingering", **until(clock.after(10)))
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert ended_by_expiry(end)
    assert trio.current_time() - began == pytest.approx(10 + GRACE + Limits().cancel_grace_seconds)


@pytest.mark.spec("9.5-7")
async def test_an_agent_whose_lease_is_over_before_it_starts_is_not_called(
    clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """A lease that ends while the acceptance is being stored ends the job before its start."""
    store = SlowStore()
    async with make_runtime(clock=clock, store=store) as runtime:
        runtime.add(doer.agents)
        async with open_peer(runtime) as peer:
            await peer.hello()
            store.seconds = 5
            end, bodies = await do(peer, ["log", "called"], **until(clock.after(1)))
            assert ended_by_expiry(end)
            assert bodies == []


@pytest.mark.parametrize("seconds", [5, 60])
async def test_the_first_of_two_ends_counts(
    peer: Peer, clock: SteppedClock, seconds: int, autojump_clock: MockClock
) -> None:
    """A time limit before the lease's end ends the job as timed out, one after it never does."""
    fields = until(clock.after(10)) | {"max_runtime_sec": seconds}
    end, _ = await do(peer, ["sleep", 50], **fields)
    if seconds < 10:
        assert (end["code"], end["final_status"]) == ("TIMEOUT", "timed_out")
    else:
        assert ended_by_expiry(end)


async def test_a_cancel_behind_the_end_meets_a_job_that_has_ended(
    peer: Peer, runtime: Runtime, clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """A cancel after the expiry was decided is refused, and the job has one end."""

    @runtime.agent("immovable")
    async def immovable(_: JobContext) -> Json:
        with trio.CancelScope(shield=True):
            await trio.sleep(15)

    accepted = await peer.submit("immovable", **until(clock.after(10)))
    await trio.sleep(12)
    request = await peer.send("job.cancel", {"job_id": accepted["job_id"]})
    with pytest.raises(ArcpError, match="error"):
        await peer.answer("job.cancelled", request)
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert ended_by_expiry(end)


@pytest.mark.spec("14-5")
async def test_an_expiry_is_logged_once(
    peer: Peer, clock: SteppedClock, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """An expiry is logged once, with job, principal and time, however often the agent tries."""
    caplog.set_level(logging.INFO)
    end_of_lease = clock.after(1)
    accepted = await peer.submit(
        "doer", [["sleep", 2], *[["tool", "t"]] * 3], **until(end_of_lease)
    )
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert ended_by_expiry(end)
    (its,) = [fields_of(r) for r in caplog.records if r.getMessage() == "lease expired"]
    assert its["job_id"] == accepted["job_id"]
    assert its["principal"] == "alice"
    assert its["expires_at"] == end_of_lease


# -- parents and children


@pytest.mark.spec("9.4-5", "9.4-6", "9.4-7", "10-3")
@pytest.mark.parametrize(
    ("expires_in", "ends_at"), [(None, 10.0), (5.0, 5.0), (10.0, 10.0), (10.001, None)]
)
async def test_a_child_expires_with_its_parent_or_before(
    peer: Peer,
    clock: SteppedClock,
    expires_in: float | None,
    ends_at: float | None,
    autojump_clock: MockClock,
) -> None:
    """A child inherits its parent's expiry, and a later one of its own is refused."""
    steps: list[list[Json]] = [["sleep", 1], ["tool", "t"]] * 20
    child: Json = {
        "agent": "doer",
        "input": steps,
        "lease": {"tool.call": ["t"]},
        "expires_in": expires_in,
    }
    began = clock.now()
    accepted = await peer.submit("doer", [["delegate", child]], **until(clock.after(10)))
    frames = await until_end(peer, accepted["job_id"])
    end = frames[-1]["payload"]
    if ends_at is None:
        assert end["result"] == ["LEASE_SUBSET_VIOLATION"]
        return
    if ends_at == 10:
        assert ended_by_expiry(end)  # with its child
    else:
        assert end["result"] == [EXPIRED]
    (born,) = [frame["payload"] for frame in frames if frame["type"] == "job.accepted"]
    assert born["lease_constraints"] == {"expires_at": rfc3339(began + ends_at)}
    answers = [frame["payload"]["body"] for frame in frames if "call_id" in str(frame)]
    assert len([body for body in answers if "result" in body]) == int(ends_at)


@pytest.mark.spec("9.4-7", "9.5-6")
async def test_the_end_of_a_lease_ends_the_tree_below(
    peer: Peer, runtime: Runtime, clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """A child ends with its parent's lease, as its own, and before the parent."""

    @runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        await job.delegate("sleeper")
        with trio.CancelScope(shield=True):
            await trio.sleep(13)
            await job.log("last words")

    accepted = await peer.submit("parent", **until(clock.after(10)))
    frames = await until_end(peer, accepted["job_id"])
    child, words, end = frames[-3:]
    assert ended_by_expiry(child["payload"])
    assert words["payload"]["body"]["message"] == "last words"
    assert ended_by_expiry(end["payload"])
