"""Jobs that require a sandbox: they are contained, or end before their agent does anything."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from arcp_trio import (
    Client,
    DuplicateKey,
    InvalidRequest,
    JobContext,
    JobFailed,
    Lease,
    Policy,
    Runtime,
    StaticTokens,
)
from arcp_trio.testing import open_pair, open_peer
from arcp_trio.wire.rules import SANDBOX

REQUIRED = {SANDBOX: "required"}


class Contained:
    """An agent that says of itself that it is contained."""

    contained = True

    async def __call__(self, job: JobContext) -> str:
        """Delegate to the agent that the input names."""
        if job.input is None:
            return "done"
        child = await job.delegate("plain")
        await child.result()
        return "delegated"


async def plain(job: JobContext) -> str:
    """Return that this has been called."""
    return f"{job.id} has been called"


def runtime_of(policy: Policy | None = None) -> Runtime:
    """Return a runtime with an agent that is contained, and one that is not."""
    runtime = Runtime(auth=StaticTokens({"tok": "alice"}), policy=policy)
    runtime.agent("plain")(plain)
    runtime.agent("contained")(Contained())
    return runtime


@asynccontextmanager
async def connected(policy: Policy | None = None) -> AsyncGenerator[Client, None]:
    """Connect a client to such a runtime."""
    with trio.fail_after(60):
        async with runtime_of(policy) as runtime, open_pair(runtime, token="tok") as client:
            yield client


async def test_an_agent_without_a_sandbox() -> None:
    """A job that requires a sandbox ends before an agent without one is called; it is told so."""
    async with connected() as client:
        job = await client.submit("plain", contained=True)
        assert job.lease_constraints == REQUIRED
        with pytest.raises(JobFailed, match="requires a sandbox") as caught:
            await job.result()
        assert caught.value.code == "PERMISSION_DENIED"
        assert "called" in str(await (await client.submit("plain")).result())


async def test_an_agent_with_a_sandbox() -> None:
    """An agent that is contained does the job."""
    async with connected() as client:
        job = await client.submit("contained", contained=True, expires_in=100)
        assert set(job.lease_constraints) == {SANDBOX, "expires_at"}
        assert await job.result() == "done"


async def test_children_inherit_it() -> None:
    """What a contained job delegates has to be contained, too."""
    async with connected() as client:
        lease = {"agent.delegate": ["plain"]}
        with pytest.raises(JobFailed, match="sandbox"):
            await (await client.submit("contained", "plain", lease=lease, contained=True)).result()
        job = await client.submit("contained", "plain", lease=lease)
        assert await job.result() == "delegated"


async def test_a_policy_cannot_do_without_it() -> None:
    """A policy that makes a lease of its own keeps what the client requires."""

    class Own(Policy):
        def lease_for(self, principal: str, agent: str, requested: Lease) -> Lease:
            del principal, agent, requested
            return Lease()

    async with connected(Own()) as client:
        assert (await client.submit("contained", contained=True)).lease_constraints == REQUIRED


async def test_it_is_a_parameter_of_a_submit() -> None:
    """Under one key, a job that requires a sandbox is not one that does not."""
    async with connected() as client:
        await client.submit("contained", idempotency_key="k", contained=True)
        await client.submit("contained", idempotency_key="k", contained=True)
        with pytest.raises(DuplicateKey):
            await client.submit("contained", idempotency_key="k")


async def test_another_value_is_refused() -> None:
    """A value that is not known is refused: a wish that is not understood is not passed over."""
    with trio.fail_after(60):
        async with runtime_of() as runtime, open_peer(runtime) as peer:
            await peer.hello(token="tok")
            with pytest.raises(InvalidRequest, match="sandbox"):
                await peer.submit("plain", lease_constraints={SANDBOX: "preferred"})
