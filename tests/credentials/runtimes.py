"""Runtimes that provide jobs with credentials, and agents that use, keep and rotate them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import trio

from arcp_trio import JobContext, JobError, Json, Limits, MemoryStore, Runtime, StaticTokens
from arcp_trio.store.records import CredentialRow
from arcp_trio.testing import Peer, TrioClock, open_peer
from arcp_trio.testing.peer import TEST_TOKEN
from tests.credentials.upstream import SpentTooMuchError, Upstream, WrongModelError

BOB = "bob-token"

LEASE = {"tool.call": ["llm.*"], "cost.budget": ["USD:2.00"], "model.use": ["tier-fast/*"]}


class SafeStore(MemoryStore):
    """Stands for a durable store: what it has outlives the runtime, in the test that holds it."""

    durable = True

    @property
    def credentials(self) -> list[CredentialRow]:
        """What is stored of credentials that are not revoked."""
        return list(self._credentials.values())


def make_runtime(
    upstream: Upstream | None,
    store: MemoryStore | None = None,
    *,
    clock: TrioClock | None = None,
    **limits: float,
) -> Runtime:
    """A runtime in virtual time for the principals tester and bob."""
    runtime = Runtime(
        auth=StaticTokens({TEST_TOKEN: "tester", BOB: "bob"}),
        store=SafeStore() if store is None else store,
        provisioner=upstream,
        clock=clock or TrioClock(),
        limits=Limits(**limits),  # type: ignore[arg-type]
    )

    @runtime.agent("worker")
    async def worker(job: JobContext) -> Json:
        """Look at its credentials, log so often, and return how many it has."""
        for number in range(job.input or 0):
            await job.log(str(number))
            await trio.sleep(1)
        return len(job.credentials)

    @runtime.agent("sleeper")
    async def sleeper(job: JobContext) -> Json:
        """Stay until ended."""
        await job.log("here")
        await trio.sleep_forever()

    @runtime.agent("failer")
    async def failer(_job: JobContext) -> Json:
        """Fail."""
        raise JobError("it did not work")

    @runtime.agent("rotator")
    async def rotator(job: JobContext) -> Json:
        """Rotate its first credential so many times, a second apart, and sleep if it is told to."""
        for _ in range(job.input["times"]):
            await trio.sleep(1)
            await job.rotate(job.credentials[0].id)
        await trio.sleep(job.input.get("sleep", 0))
        return [credential.id for credential in job.credentials]

    @runtime.agent("caller")
    async def caller(job: JobContext) -> Json:
        """Have a tool call fail as the gateway fails, and then fail of it too if told to."""
        errors = {"spent": SpentTooMuchError("402"), "model": WrongModelError("403"), "odd": OSError("x")}
        error = errors[job.input["error"]]
        try:
            async with job.tool_call("llm.chat"):
                raise error
        except Exception:
            if job.input.get("dies"):
                raise
        return "went on"

    return runtime


@asynccontextmanager
async def provided(
    upstream: Upstream, store: MemoryStore | None = None, **limits: float
) -> AsyncGenerator[tuple[Runtime, Peer], None]:
    """A running runtime and a connected peer."""
    async with make_runtime(upstream, store, clock=None, **limits) as runtime, open_peer(runtime) as peer:
        await peer.hello()
        yield runtime, peer
