"""Runtimes for the tests of jobs: who may come in, and a few agents that most tests need."""

from __future__ import annotations

from collections.abc import Iterable

import trio
from trio.testing import wait_all_tasks_blocked

from arcp_trio import Agents, Clock, JobContext, Limits, MemoryStore, Policy, Runtime, StaticTokens
from arcp_trio.testing import TrioClock
from arcp_trio.testing.peer import TEST_TOKEN
from arcp_trio.wire.json import Json

BOB = "bob's token"
OPERATOR = "the operator's token"

simple_agents = Agents()


@simple_agents.agent("echo")
async def echo(job: JobContext) -> Json:
    """Return the input."""
    return job.input


@simple_agents.agent("sleeper")
async def sleeper(_job: JobContext) -> Json:
    """Sleep until the job is ended from outside."""
    await trio.sleep_forever()


@simple_agents.agent("stubborn")
async def stubborn(job: JobContext) -> Json:
    """Work for so many seconds, an event each, whoever wants it to stop."""
    with trio.CancelScope(shield=True):
        for second in range(job.input):
            await trio.sleep(1)
            await job.log(f"second {second}")


def make_runtime(
    *,
    store: MemoryStore | None = None,
    operators: Iterable[str] = (),
    limits: Limits | None = None,
    clock: Clock | None = None,
    policy: Policy | None = None,
) -> Runtime:
    """A runtime in virtual time for the principals tester, bob and operator."""
    runtime = Runtime(
        auth=StaticTokens({TEST_TOKEN: "tester", BOB: "bob", OPERATOR: "operator"}),
        store=store,
        clock=clock or TrioClock(),
        limits=limits,
        operators=operators,
        policy=policy,
    )
    runtime.add(simple_agents)
    return runtime


async def tasks_back_to(baseline: int) -> bool:
    """Whether no more tasks than before are left, once everything has come to rest."""
    await wait_all_tasks_blocked()
    return trio.lowlevel.current_statistics().tasks_living <= baseline
