"""A runtime whose agents are programs, and a client of it."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from arcp_trio import (
    Client,
    JobHandle,
    Limits,
    Runtime,
    StaticTokens,
    stdio_agent,
)
from arcp_trio.testing import open_pair

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OURS = [
    *(sys.executable, "-m", "arcp_trio", "serve", "--stdio", "--memory"),
    *("--agents", "programs"),
]
PATHS = {"PYTHONPATH": f"{ROOT}:{HERE}"}
PROGRAMS = (
    *(
        "mirror",
        "talker",
        "counter",
        "author",
        "teller",
        "loud",
        "patient",
        "stubborn",
        "crash",
        "failing",
    ),
    *("spender", "boss", "curious", "careful", "sender"),
)
MODES = (
    "spends",
    "sloppy",
    "holes",
    "closes",
    "retracts",
    "boasts",
    "floods",
    "mumbles",
    "refuses",
    "babbles",
    "several",
    "meets",
)


def awkward(mode: str) -> list[str]:
    """Return the command of a runtime with a fault."""
    return [sys.executable, str(HERE / "awkward.py"), mode]


def runtime_of_programs(limits: Limits | None = None) -> Runtime:
    """Return a runtime whose agents are programs."""
    runtime = Runtime(auth=StaticTokens({"tok": "alice"}), limits=limits)
    for name in PROGRAMS:
        runtime.agent(name, version="1.2.0")(stdio_agent(OURS, environment=PATHS))
    for mode in MODES:
        runtime.agent(mode)(stdio_agent(awkward(mode)))
    runtime.agent("absent")(stdio_agent(["/no/such/program"]))
    runtime.agent("other-name")(stdio_agent(OURS, agent="mirror", environment=PATHS))
    runtime.agent("echo")(stdio_agent([sys.executable, str(HERE / "vendor_program.py")]))
    runtime.agent("sleeper")(stdio_agent([sys.executable, str(HERE / "vendor_program.py")]))
    return runtime


@asynccontextmanager
async def connected(limits: Limits | None = None) -> AsyncGenerator[Client, None]:
    """Connect a client to a runtime whose agents are programs, in real time."""
    runtime = runtime_of_programs(limits)
    with trio.fail_after(60):
        async with runtime, open_pair(runtime, token="tok") as client:
            yield client


async def run(client: Client, agent: str, input_: object = None, **terms: Any) -> Any:
    """Run a job and return its result."""
    return await (await client.submit(agent, input_, **terms)).result()


async def events_of(handle: JobHandle) -> list[tuple[str, Any]]:
    """Return a job's events, up to its end."""
    return [(event.kind, event.body) async for event in handle.events()]


async def started(handle: JobHandle) -> list[int]:
    """Return the processes that a job's first event names."""
    async for event in handle.events():
        return [int(word) for word in event.body["message"].split()]
    raise AssertionError("no event")
