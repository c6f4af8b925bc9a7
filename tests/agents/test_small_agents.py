"""Agents that other people wrote and that need no model, where they are installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agents.stage import SLOW, errors, installed, phases, serving, told

pytestmark = SLOW


@pytest.fixture
def echo() -> str:
    """Return the Python SDK's example; the test is skipped where it is not installed."""
    return installed("echo/examples/echo_agent.py")


@pytest.fixture
def example() -> str:
    """Return the npm SDK's example; the test is skipped where it is not installed."""
    return installed("example/node_modules/@agentclientprotocol/sdk/dist/examples/agent.js")


@pytest.mark.parametrize("sandbox", ["off", "auto"])
async def test_echo(tmp_path: Path, echo: str, sandbox: str) -> None:
    """The example of the Python SDK, which says nothing of itself, says the prompt."""
    async with serving([sys.executable, echo], tmp_path, sandbox=sandbox) as client:
        job = await client.submit("coder", "hello there")
        events = await told(job)
        assert await job.result() == "hello there"
        assert phases(events)[1:] == ["session: coder"]


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "refused"])
async def test_example(tmp_path: Path, example: str, *, allowed: bool) -> None:
    """The example of the npm SDK reads a file, and edits one if the lease lets it."""
    lease = {"fs.write": ["/home/user/project/**"]} if allowed else {}
    async with serving(["node", example], tmp_path, sandbox="auto") as client:
        job = await client.submit("coder", "go on", lease=lease)
        events = await told(job)
        words = await job.result()
    assert words.startswith("I'll help you with that.")
    assert ("successfully updated" in words) is allowed
    assert errors(events) == ([] if allowed else ["PERMISSION_DENIED", "CANCELLED"])
    tools = [body["tool"] for kind, body in events if kind == "tool_call"]
    assert tools == ["acp/read", "acp/edit", "session/request_permission"]


async def test_example_is_cancelled(tmp_path: Path, example: str) -> None:
    """The example of the npm SDK heeds a cancel in the middle of its work."""
    async with serving(["node", example], tmp_path, sandbox="auto") as client:
        job = await client.submit("coder", "go on")
        async for event in job.events():
            if event.kind == "tool_call":
                await job.cancel()
        assert job.terminal is not None
        assert job.terminal["final_status"] == "cancelled"
