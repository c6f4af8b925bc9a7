"""A deployment decides what may be leased, before a job is accepted: ceilings and policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import pytest
from trio.testing import MockClock

from arcp_trio import Ceiling, InternalError, Json, Lease, PermissionDenied, Policy
from arcp_trio.testing import open_peer
from arcp_trio.testing.frames import Frame
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.timestamps import parse_utc
from tests.jobs import delegating, doer
from tests.jobs.doer import SteppedClock, do
from tests.stage import BOB, make_runtime


def ceiling(request: Mapping[str, Sequence[str]], expires_in: float | None = None) -> Ceiling:
    """Return the ceiling of this request."""
    return Ceiling(lease=Lease.read(request), expires_in=expires_in)


async def accepted(policy: Policy, *, token: str = TEST_TOKEN, **fields: Json) -> Frame:
    """Return the acceptance of a job under this policy, or raise the refusal."""
    clock = SteppedClock()
    runtime = make_runtime(doer.agents, clock=clock, policy=policy)
    async with runtime, open_peer(runtime) as peer:
        await peer.hello(token=token)
        return await peer.submit("doer", [], **fields)


async def test_patterns_beyond_the_ceiling_are_refused(autojump_clock: MockClock) -> None:
    """A pattern that is not covered leads to no job, and the refusal names it."""
    policy = Policy(ceilings={"alice": ceiling({"fs.read": ["/srv/**"], "tool.call": ["a.*"]})})
    within = {"fs.read": ["/srv/data/*"], "tool.call": ["a.b"]}
    assert (await accepted(policy, lease_request=within))["lease"] == within
    wider: list[Frame] = [{"fs.read": ["/**"]}, {"fs.read": ["/srv*/a"]}, {"model.use": ["*"]}]
    for beyond in wider:
        with pytest.raises(PermissionDenied, match="beyond what this principal may lease") as error:
            await accepted(policy, lease_request=beyond)
        [(capability, [pattern])] = beyond.items()
        assert error.value.details == {"beyond": [{"capability": capability, "pattern": pattern}]}


async def test_money_and_time_are_reduced(autojump_clock: MockClock) -> None:
    """A job gets the smaller amount and the earlier expiry, and its client is told."""
    policy = Policy(ceilings={"*": ceiling({"cost.budget": ["USD:5", "EUR:1"]}, expires_in=60)})
    job = await accepted(policy, lease_request={"cost.budget": ["USD:3", "EUR:2", "GBP:9"]})
    assert job["lease"] == {"cost.budget": ["USD:3", "EUR:1", "GBP:9"]}
    assert job["budget"] == {"USD": 3, "EUR": 1, "GBP": 9}
    assert parse_utc(job["lease_constraints"]["expires_at"]) == doer.STARTED_AT + 60
    job = await accepted(policy)
    assert job["lease"] == {"cost.budget": ["USD:5", "EUR:1"]}
    sooner = SteppedClock().after(30)
    job = await accepted(policy, lease_constraints={"expires_at": sooner})
    assert job["lease_constraints"] == {"expires_at": sooner}


async def test_a_principal_has_its_own_ceiling(autojump_clock: MockClock) -> None:
    """A principal's own ceiling stands in the place of everybody's."""
    policy = Policy(ceilings={"*": ceiling({}), "bob": ceiling({"tool.call": ["**"]})})
    asked = {"tool.call": ["search.*"]}
    assert (await accepted(policy, token=BOB, lease_request=asked))["lease"] == asked
    with pytest.raises(PermissionDenied):
        await accepted(policy, lease_request=asked)


async def test_a_ceiling_of_models_holds_for_a_lease_without_any(
    autojump_clock: MockClock,
) -> None:
    """Where leases without `model.use` allow every model, a ceiling that names models does not."""
    policy = Policy(any_model=True, ceilings={"*": ceiling({"model.use": ["small"]})})
    async with make_runtime(doer.agents, policy=policy) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        end, _ = await do(peer, ["authorize", "model.use", "small"])
        assert end["result"] == ["PERMISSION_DENIED"]


class Deciding(Policy):
    """A policy that reduces, refuses or fails, by the lease that is requested."""

    def lease_for(self, principal: str, agent: str, requested: Lease) -> Lease:
        """Refuse files of bob, and give the worker no tools."""
        if requested.names("fs.write") and principal == "bob":
            raise PermissionDenied(f"bob writes no files with {agent}")
        if requested.names("x-vendor.fails"):
            raise ZeroDivisionError
        if agent.startswith("worker@"):
            return attrs.evolve(requested, grants={})
        return requested


async def test_a_policy_refuses_in_its_own_words(autojump_clock: MockClock) -> None:
    """A refusal of `lease_for` reaches the client, and leads to no job."""
    asked = {"fs.write": ["/a"]}
    assert (await accepted(Deciding(), lease_request=asked))["lease"] == asked
    with pytest.raises(PermissionDenied, match=r"bob writes no files with doer@1\.0\.0"):
        await accepted(Deciding(), token=BOB, lease_request=asked)


@pytest.mark.logs_error("policy failed")
async def test_a_policy_that_fails_gives_nothing(autojump_clock: MockClock) -> None:
    """An error in `lease_for` refuses the job, and the client learns nothing of it."""
    with pytest.raises(InternalError, match="the runtime has a fault"):
        await accepted(Deciding(), lease_request={"x-vendor.fails": ["a"]})


async def test_a_policy_decides_of_delegated_jobs(autojump_clock: MockClock) -> None:
    """What a policy takes from an agent is taken from it as a delegated one, too."""
    runtime = make_runtime(delegating.agents, policy=Deciding())
    async with runtime, open_peer(runtime) as peer:
        await peer.hello()
        asked = {"agent": "worker", "lease": {"tool.call": ["search.*"]}}
        job = await peer.submit("boss", asked, lease_request=delegating.LEASE)
        end = await peer.until_terminal(job["job_id"])
        assert end["payload"]["result"] == {"refused": "PERMISSION_DENIED"}
