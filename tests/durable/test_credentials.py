"""Credentials of durable jobs: those of the run before are revoked, and others are minted."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from arcp_trio import Agents, JobContext, Json, PermissionDenied
from tests.credentials.upstream import Upstream
from tests.durable.stage import Life, result

LEASE = {"model.use": ["tier-fast/*"], "tool.call": ["*"]}


def holder(held: list[str]) -> Agents:
    """Return an agent that notes the values of its credentials in each run."""
    agents = Agents()

    @agents.agent("agent", durable=True)
    async def agent(job: JobContext) -> Json:
        held.extend(credential.value for credential in job.credentials)
        await job.log("begin")
        await trio.sleep(1_000 if job.run == 1 else 1)
        return job.run

    return agents


async def test_another_run_has_others(autojump_clock: MockClock) -> None:
    """An upstream that does not answer is asked again; the submitter learns of the new value."""
    held: list[str] = []
    agents, upstream = holder(held), Upstream()
    async with Life.begin(agents, provisioner=upstream) as life:
        job_id = (await life.peer.submit("agent", lease_request=LEASE))["job_id"]
        await life.until_told(job_id, "begin")
        left = life.killed()
        (old,) = upstream.live
        upstream.failing = lambda call: OSError("unreachable") if call == "issue" else None
    began = trio.current_time()
    upstream.revoked.clear()
    async with Life.begin(agents, left, before=life, provisioner=upstream) as second:
        await trio.sleep(20)
        await second.peer.send("session.list_jobs", {})
        listed = await second.peer.expect("session.jobs")
        assert [entry["status"] for entry in listed["payload"]["jobs"]] == ["running"]
        upstream.failing = lambda _: None
        end = await second.peer.until_terminal(job_id)
        assert result(end) == 2
        events = [event["payload"]["body"] for event in second.events(job_id)]
        assert [body.get("phase", body.get("message")) for body in events] == [
            *("begin", "resumed", "credential_rotated"),
        ]
        assert events[-1]["value"] == held[1] != held[0]
        assert upstream.revoked[old] - began < 5
        assert not upstream.live


async def test_a_refusal_ends_the_job(autojump_clock: MockClock) -> None:
    """What the upstream refuses for good is not asked for again."""
    held: list[str] = []
    agents, upstream = holder(held), Upstream()
    async with Life.begin(agents, provisioner=upstream) as life:
        job_id = (await life.peer.submit("agent", lease_request=LEASE))["job_id"]
        await life.until_told(job_id, "begin")
        left = life.killed()
    upstream.failing = lambda call: PermissionDenied("no more") if call == "issue" else None
    async with Life.begin(agents, left, before=life, provisioner=upstream) as second:
        assert result(await second.peer.until_terminal(job_id)) == "PERMISSION_DENIED"
        assert second.told(job_id) == ["begin"]
