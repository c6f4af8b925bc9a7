"""A runtime whose agents are programs that speak ACP, and a client of it."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio

from arcp_trio import Client, JobHandle, Limits, Policy, Runtime, StaticTokens, acp_agent
from arcp_trio.testing import open_pair
from tests.proxies.acp.wire import PairingRecorder

SCRIPTED: Final = str(Path(__file__).with_name("scripted.py"))
TOKENS: Final = StaticTokens({"tok": "alice", "bob-tok": "bob"})
SECONDS: Final = 100
"""The bound of a test, on a machine of any speed."""


def command(**options: Any) -> list[str]:
    """Return the command of the scripted agent."""
    return [sys.executable, SCRIPTED, *([json.dumps(options)] if options else [])]


def steps(*each: list[Any]) -> str:
    """Return a prompt."""
    return json.dumps(each)


def runtime_of(
    agents: Mapping[str, list[str]] | None = None,
    *,
    limits: Limits | None = None,
    policy: Policy | None = None,
    **terms: Any,
) -> Runtime:
    """Return a runtime with the scripted agent, or with agents of these commands.

    Unless a test is about sandboxes, programs have none, so that their processes can be seen.
    """
    terms = {"sandbox": "off", **terms}
    runtime = Runtime(auth=TOKENS, limits=limits, policy=policy)
    for name, words in (agents or {"scripted": command()}).items():
        runtime.agent(name)(acp_agent(words, **terms))
    return runtime


@asynccontextmanager
async def connected(
    agents: Mapping[str, list[str]] | None = None,
    *,
    limits: Limits | None = None,
    policy: Policy | None = None,
    recorder: PairingRecorder | None = None,
    token: str = "tok",
    **terms: Any,
) -> AsyncGenerator[Client, None]:
    """Connect a client to such a runtime, in real time; each frame is checked."""
    runtime = runtime_of(agents, limits=limits, policy=policy, **terms)
    with trio.fail_after(SECONDS):
        async with (
            runtime,
            open_pair(runtime, token=token, recorder=recorder or PairingRecorder()) as client,
        ):
            yield client


async def begin(
    client: Client, *each: list[Any], agent: str = "scripted", **terms: Any
) -> JobHandle:
    """Submit a job whose agent does some steps."""
    return await client.submit(agent, steps(*each), **terms)


async def result_of(client: Client, *each: list[Any], **terms: Any) -> Any:
    """Run a job whose agent does some steps, and return its result."""
    return await (await begin(client, *each, **terms)).result()


async def told(handle: JobHandle) -> list[tuple[str, Any]]:
    """Return a job's events up to its end, without those about its start and its client."""
    events = [(event.kind, event.body) async for event in handle.events()]
    left_out = ("starting", "session", "back_pressure")
    return [each for each in events if each[1].get("phase") not in left_out]


async def kinds(handle: JobHandle) -> list[str]:
    """Return the kinds of those events."""
    return [kind for kind, _ in await told(handle)]


async def words(handle: JobHandle) -> AsyncGenerator[Any, None]:
    """Yield the values that a job's agent tells one by one, as JSON."""
    async for event in handle.events():
        if event.kind == "result_chunk" and event.body["data"]:
            yield json.loads(event.body["data"])


async def first_word(handle: JobHandle) -> Any:
    """Return the first value that a job's agent tells."""
    async for event in handle.events():
        if event.kind == "result_chunk" and event.body["data"]:
            return json.JSONDecoder().raw_decode(event.body["data"])[0]
    raise AssertionError("the agent has said nothing")
