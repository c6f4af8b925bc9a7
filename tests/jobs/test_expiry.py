"""A lease ends at its time, whatever the wall clock is set to, and ends its job (§9.5)."""

from __future__ import annotations

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
from arcp_trio.testing import Peer, open_peer
from arcp_trio.wire.json import Json
from tests.jobs import doer
from tests.jobs.doer import SteppedClock, do
from tests.jobs.expiring import EXPIRED, GRACE, ended_by_expiry, until
from tests.reading import until_end
from tests.slow_stores import SlowStore
from tests.stage import make_runtime

# -- how an expiry is asked for


@pytest.mark.spec("9.5-1", "9.5-2", "9.5-3")
@pytest.mark.parametrize(
    "expires_at",
    [
        "2000-01-01T00:00:00Z",
        "2099-01-01T00:00:00+02:00",
        "2099-01-01T00:00:00+00:00",
        "2099-01-01T00:00:00",
        "2099-01-01T00:00:00z",
        "2099-01-01",
        "2026-13-45T00:00:00Z",
        "not-a-date",
        "",
        4070908800,
        True,
        ["2099-01-01T00:00:00Z"],
    ],
)
async def test_what_is_no_future_time_in_utc_is_refused(
    peer: Peer, expires_at: Json, autojump_clock: MockClock
) -> None:
    """An `expires_at` that is not a future time in UTC is refused, not taken as unlimited."""
    with pytest.raises(ArcpError) as refusal:
        await peer.submit("doer", [], **until(expires_at))
    assert refusal.value.code == "INVALID_REQUEST"


@pytest.mark.spec("9.5-2", "9.5-3")
async def test_now_is_not_in_the_future(
    peer: Peer, clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """The present and the past are refused; a millisecond from now is accepted."""
    for seconds in (-1, 0):
        with pytest.raises(ArcpError) as refusal:
            await peer.submit("doer", [], **until(clock.after(seconds)))
        assert refusal.value.code == "INVALID_REQUEST"
    await peer.submit("doer", [], **until(clock.after(0.001)))


@pytest.mark.spec("9.5-5")
async def test_an_expiry_needs_no_lease_request(
    peer: Peer, clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """An expiry without a lease is accepted, shown and enforced."""
    end_of_lease = clock.after(1)
    accepted = await peer.submit(
        "doer",
        [["authorize", "tool.call", "t"], ["sleep", 2], ["authorize", "tool.call", "t"]],
        lease_constraints={"expires_at": end_of_lease},
    )
    assert accepted["lease"] == {}
    assert accepted["lease_constraints"] == {"expires_at": end_of_lease}
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert ended_by_expiry(end)


# -- at its time


@pytest.mark.spec("9.5-4", "9.5-7", "14-4")
@pytest.mark.parametrize(
    ("at", "allowed"), [(9.9, True), (10 + GRACE - 0.01, True), (10 + GRACE + 0.01, False)]
)
async def test_a_job_ends_with_its_lease(
    peer: Peer, clock: SteppedClock, at: float, *, allowed: bool, autojump_clock: MockClock
) -> None:
    """Up to its end the lease allows operations; then the job ends, whatever it does."""
    began = trio.current_time()
    end, bodies = await do(
        peer, ["sleep", at], ["tool", "t"], ["log", "still here"], **until(clock.after(10))
    )
    assert [body.get("message") for body in bodies[2:]] == (["still here"] if allowed else [])
    assert end["final_status"] == "success" if allowed else ended_by_expiry(end)
    assert trio.current_time() - began == pytest.approx(min(at, 10 + GRACE))


@pytest.mark.spec("9.5-4", "9.5-5", "9.5-6")
@pytest.mark.parametrize("at", [10 + GRACE, 15])
async def test_from_its_end_on_nothing_is_allowed(
    peer: Peer, runtime: Runtime, clock: SteppedClock, at: float, autojump_clock: MockClock
) -> None:
    """An agent that does not stop at the end of its lease is refused what it asks for."""

    @runtime.agent("immovable")
    async def immovable(job: JobContext) -> Json:
        with trio.CancelScope(shield=True):
            await trio.sleep(at)
            with pytest.raises(LeaseExpired):
                async with job.tool_call("t"):
                    pass
            await job.log("still here")
        return "never said"

    accepted = await peer.submit("immovable", **until(clock.after(10)))
    end, bodies = await doer.whole(peer, accepted["job_id"])
    assert [body["error"]["code"] for body in bodies if "error" in body] == [EXPIRED]
    assert bodies[-1]["message"] == "still here"
    assert ended_by_expiry(end)


@pytest.mark.spec("14-4")
@pytest.mark.parametrize("grace", [0, 1])
async def test_the_grace_is_configured(
    clock: SteppedClock, grace: float, autojump_clock: MockClock
) -> None:
    """The grace can be configured up to a second; more is refused."""
    with pytest.raises(ValueError, match="lease_grace_seconds"):
        Limits(lease_grace_seconds=1.01)
    async with make_runtime(clock=clock, limits=Limits(lease_grace_seconds=grace)) as runtime:
        runtime.add(doer.agents)
        async with open_peer(runtime) as peer:
            await peer.hello()
            for at, allowed in ((10 + grace - 0.01, True), (10 + grace + 0.01, False)):
                end, _ = await do(peer, ["sleep", at], ["tool", "t"], **until(clock.after(10)))
                assert end["final_status"] == ("success" if allowed else "error")


@pytest.mark.spec("9.5-4", "14-3")
@pytest.mark.parametrize("step", [3600.0, -3600.0])
async def test_setting_the_wall_clock_moves_no_end(
    peer: Peer, runtime: Runtime, clock: SteppedClock, step: float, autojump_clock: MockClock
) -> None:
    """A lease of ten seconds ends after ten seconds, whatever the wall clock is set to."""

    @runtime.agent("patient")
    async def patient(job: JobContext) -> Json:
        clock.step = step
        await trio.sleep(9.9)
        job.authorize("tool.call", "t")
        await trio.sleep_forever()

    began = trio.current_time()
    accepted = await peer.submit("patient", **until(clock.after(10)))
    end, _ = await doer.whole(peer, accepted["job_id"])
    assert ended_by_expiry(end)
    assert trio.current_time() - began == pytest.approx(10 + GRACE)


@pytest.mark.spec("9.4-7", "14-3")
@pytest.mark.parametrize("step", [3600.0, -3600.0])
@pytest.mark.parametrize("expires_in", [None, 5])
async def test_setting_the_wall_clock_moves_no_end_of_a_child(
    peer: Peer,
    runtime: Runtime,
    clock: SteppedClock,
    step: float,
    expires_in: float | None,
    autojump_clock: MockClock,
) -> None:
    """A child that inherits its parent's expiry ends with it, whatever the wall clock says."""

    @runtime.agent("parent")
    async def parent(job: JobContext) -> Json:
        await trio.sleep(1)
        clock.step = step
        steps: Json = [["sleep", 8], ["tool", "t"], ["sleep", 2], ["tool", "t"]]
        child = await job.delegate("doer", steps, lease={"tool.call": ["t"]}, expires_in=expires_in)
        await child.result()

    accepted = await peer.submit("parent", **until(clock.after(10)))
    frames = await until_end(peer, accepted["job_id"])
    if expires_in is not None and step > 0:
        codes = [
            frame["payload"]["body"].get("error", {}).get("code")
            for frame in frames
            if frame["type"] == "job.event"
        ]
        assert "LEASE_SUBSET_VIOLATION" in codes  # by the wall clock it would be later
    else:
        ends = [frame["payload"]["code"] for frame in frames if frame["type"] == "job.error"]
        assert ends == [EXPIRED] * 2


@pytest.mark.spec("9.5-5")
async def test_a_slow_acceptance_postpones_no_end(
    clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """The time of a lease runs from the submit on, however slow the store is."""
    store = SlowStore()
    async with make_runtime(clock=clock, store=store) as runtime:
        runtime.add(doer.agents)
        async with open_peer(runtime) as peer:
            await peer.hello()
            store.seconds = 5
            end, _ = await do(
                peer, ["sleep", 5 + 2 * GRACE], ["tool", "t"], **until(clock.after(10))
            )
            assert ended_by_expiry(end)
