"""Runtimes that provide jobs with credentials, and agents that use, keep and rotate them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import trio

from arcp_trio import (
    Agents,
    JobContext,
    JobError,
    Json,
    Limits,
    MemoryStore,
    Policy,
    Runtime,
)
from arcp_trio.store.interface import Store
from arcp_trio.store.records import CredentialRow
from arcp_trio.testing import Peer, open_peer
from arcp_trio.testing.frames import Frame
from tests.credentials.upstream import (
    ENDPOINT,
    SECRET,
    SpentTooMuchError,
    Upstream,
    WrongModelError,
)
from tests.stage import make_runtime

LEASE = {
    "tool.call": ["llm.*"],
    "cost.budget": ["USD:2.00"],
    "model.use": ["tier-fast/*"],
    "agent.delegate": ["*"],
}


class SafeStore(MemoryStore):
    """A store in memory that says it is durable; its test keeps it across runtimes."""

    durable = True

    @property
    def credentials(self) -> list[CredentialRow]:
        """The stored rows of credentials that are not revoked."""
        return list(self._tables.credentials.values())


agents = Agents()


@agents.agent("worker")
async def worker(job: JobContext) -> Json:
    """Log as many lines as the input says, and return the number of credentials."""
    for number in range(job.input or 0):
        await job.log(str(number))
        await trio.sleep(1)
    return len(job.credentials)


@agents.agent("sleeper")
async def sleeper(job: JobContext) -> Json:
    """Log a line, and sleep until the job is ended."""
    await job.log("here")
    await trio.sleep_forever()


@agents.agent("stubborn")
async def stubborn(_job: JobContext) -> Json:
    """Sleep for 20 seconds, and ignore cancellation."""
    with trio.CancelScope(shield=True):
        await trio.sleep(20)


@agents.agent("expirer")
async def expirer(job: JobContext) -> Json:
    """Call a tool every other second."""
    while True:
        async with job.tool_call("llm.chat"):
            await trio.sleep(2)


@agents.agent("failer")
async def failer(_job: JobContext) -> Json:
    """Fail."""
    raise JobError("it did not work")


@agents.agent("rotator")
async def rotator(job: JobContext) -> Json:
    """Rotate the first credential `times` times, a second apart, and then sleep."""
    for _ in range(job.input["times"]):
        await trio.sleep(1)
        await job.rotate(job.credentials[0].id)
    await trio.sleep(job.input.get("sleep", 0))
    return [credential.id for credential in job.credentials]


@agents.agent("parent")
async def parent(job: JobContext) -> Json:
    """Delegate to the agent of the input with a part of the lease, and wait for its end."""
    await trio.sleep(job.input.get("after", 0))
    child = await job.delegate(
        job.input["agent"],
        job.input.get("input"),
        lease={"model.use": ["tier-fast/small"]},
        budget={"USD": "0.50"},
    )
    if job.input.get("leaves"):
        return None
    result = await child.result()
    await trio.sleep(job.input.get("stays", 0))
    return result


@agents.agent("caller")
async def caller(job: JobContext) -> Json:
    """Raise a gateway's error, or have a tool call raise it and go on."""
    errors = {
        "spent": SpentTooMuchError("402"),
        "model": WrongModelError("403"),
        "odd": OSError("x"),
    }
    error = errors[job.input["error"]]
    if job.input.get("dies"):
        raise error
    with suppress(type(error)):
        async with job.tool_call("llm.chat"):
            raise error
    return "went on"


def providing_runtime(
    upstream: Upstream | None,
    store: Store | None = None,
    **limits: float,
) -> Runtime:
    """Return a runtime with these agents and this provisioner, where auditor observes all jobs."""
    return make_runtime(
        agents,
        policy=Policy(observers={"auditor"}),
        store=SafeStore() if store is None else store,
        provisioner=upstream,
        limits=Limits(**limits),  # type: ignore[arg-type]
    )


def as_told(credential_id: str, value: str) -> Frame:
    """Return what a client is told of a credential that was issued for `LEASE`."""
    return {
        "id": credential_id,
        "scheme": "bearer",
        "value": value,
        "endpoint": ENDPOINT,
        "profile": "openai",
        "constraints": {"cost.budget": ["USD:2.00"], "model.use": ["tier-fast/*"]},
    }


@asynccontextmanager
async def provided(
    upstream: Upstream, store: Store | None = None, **limits: float
) -> AsyncGenerator[tuple[Runtime, Peer], None]:
    """Run a runtime with this upstream, and a client with a session."""
    store = SafeStore() if store is None else store
    async with (
        providing_runtime(upstream, store, **limits) as runtime,
        open_peer(runtime) as peer,
    ):
        await peer.hello()
        yield runtime, peer
    assert SECRET not in repr(vars(store))
