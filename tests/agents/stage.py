"""Agents of other people, as agents of a runtime, and a client of it."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from arcp_trio import Client, JobHandle, Runtime, SqliteStore, StaticTokens, acp_agent
from arcp_trio.testing import open_pair
from tests.proxies.acp.wire import PairingRecorder

AGENTS: Final = Path(sys.prefix) / "agents"
"""Where .ci/agents installs them."""
SECONDS: Final = 280
"""The bound of a test: some agents take many seconds to start, on a machine with much to do."""
SLOW: Final = pytest.mark.timeout(SECONDS + 20)


def installed(path: str) -> str:
    """Return the path of a program or script of an agent; skip the test if it is not there."""
    if not (AGENTS / path).exists():
        pytest.skip(f"{path.partition('/')[0]} is not installed: see .ci/agents")
    return str(AGENTS / path)


@asynccontextmanager
async def serving(
    command: Sequence[str], folder: Path, **terms: Any
) -> AsyncGenerator[Client, None]:
    """Serve an agent as `coder`, with its data in a folder, and connect a client."""
    runtime = Runtime(
        auth=StaticTokens({"tok": "alice"}), store=SqliteStore(folder / "data" / "arcp.db")
    )
    runtime.agent("coder")(acp_agent(command, data=folder / "data", **terms))
    with trio.fail_after(SECONDS):
        async with (
            runtime,
            open_pair(runtime, token="tok", recorder=PairingRecorder()) as client,
        ):
            yield client


async def told(job: JobHandle) -> list[tuple[str, Any]]:
    """Return a job's events up to its end."""
    return [(event.kind, event.body) async for event in job.events()]


def phases(events: Sequence[tuple[str, Any]]) -> list[str]:
    """Return what the job has told of its start: phases, each with its message."""
    bodies = [body for kind, body in events if kind == "status"]
    return [
        f"{body['phase']}: {body.get('message')}"
        for body in bodies
        if body["phase"] in ("starting", "session")
    ]


def errors(events: Sequence[tuple[str, Any]]) -> list[str]:
    """Return the codes of the errors in which tool calls have ended."""
    bodies = [body for kind, body in events if kind == "tool_result"]
    return [body["error"]["code"] for body in bodies if "error" in body]
