"""Bounds that were not asked for do not apply; those asked for cannot be changed (§7.1, §9.5)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from arcp_trio import ArcpError, JobContext, Runtime
from arcp_trio.testing import Peer
from arcp_trio.wire.json import Json, JsonObject
from tests.jobs.doer import SteppedClock, do, whole

A_DAY = 86_400.0


@pytest.mark.spec("7.1-3")
async def test_a_lease_without_an_end_does_not_expire(
    peer: Peer, autojump_clock: MockClock
) -> None:
    """A lease without `expires_at` allows the same a day later."""
    peer.patience = 2 * A_DAY
    end, _ = await do(
        peer,
        ["sleep", A_DAY],
        ["authorize", "tool.call", "t"],
        lease_request={"tool.call": ["*"]},
    )
    assert end["result"] == ["done", "done"]


@pytest.mark.spec("7.1-4")
async def test_without_a_budget_no_cost_is_too_much(peer: Peer, autojump_clock: MockClock) -> None:
    """A job without a budget reports costs, no remaining amount, and is never refused."""
    end, bodies = await do(
        peer,
        ["metric", "cost.search", 1_000_000, "USD"],
        ["tool", "t"],
        ["left"],
        lease_request={"tool.call": ["*"]},
    )
    assert end["result"] == ["done", "done", {}]
    assert [body["name"] for body in bodies if "name" in body] == ["cost.search"]


@pytest.mark.spec("7.1-2")
async def test_an_acceptance_has_the_counters(peer: Peer, autojump_clock: MockClock) -> None:
    """An acceptance shows the sum for each currency, and without amounts no budget."""
    accepted = await peer.submit(
        "doer", [], lease_request={"cost.budget": ["USD:5.00", "credits:10", "USD:0.50"]}
    )
    assert accepted["budget"] == {"USD": 5.5, "credits": 10}
    assert "budget" not in await peer.submit("doer", [])


@pytest.mark.spec("9.5-8")
async def test_a_lease_cannot_be_renewed(
    peer: Peer, clock: SteppedClock, autojump_clock: MockClock
) -> None:
    """A submit with a later `expires_at` gives the same job, whose lease ends as it was to."""
    steps: list[Json] = [["sleep", 2], ["authorize", "tool.call", "t"]]
    wanted: JsonObject = {"lease_request": {"tool.call": ["*"]}, "idempotency_key": "k"}
    first = await peer.submit(
        "doer", steps, **wanted, lease_constraints={"expires_at": clock.after(1)}
    )
    later = {"expires_at": clock.after(60)}
    again = await peer.submit("doer", steps, **wanted, lease_constraints=later)
    assert again["job_id"] == first["job_id"]
    assert again["lease_constraints"] == first["lease_constraints"] != later
    end, _ = await whole(peer, first["job_id"])
    assert end["code"] == "LEASE_EXPIRED"


@pytest.mark.spec("1.0/7.4-3")
async def test_a_cancelled_jobs_lease_is_over(
    runtime: Runtime, peer: Peer, autojump_clock: MockClock
) -> None:
    """The context of a cancelled job refuses every operation."""
    kept: list[JobContext] = []

    @runtime.agent("keeper")
    async def keeper(job: JobContext) -> Json:
        kept.append(job)
        job.authorize("tool.call", "t")
        await trio.sleep_forever()

    accepted = await peer.submit("keeper", lease_request={"tool.call": ["*"]})
    await trio.sleep(1)
    await peer.send("job.cancel", {"job_id": accepted["job_id"]})
    await peer.until_terminal(accepted["job_id"])
    with pytest.raises(ArcpError):
        kept[0].authorize("tool.call", "t")
